-- One call of a node for keys of one shard: account.rs, in numbers that a double holds exactly.
--
-- KEYS[1] sorted set of hot keys (any other where no list is asked for), KEYS[2] when the store
-- began, KEYS[3..] one for each key
-- ARGV[1] report keys promoted since (-1: no list), ARGV[2] length of the prefix of names,
-- ARGV[3] after it nothing is granted (-1: no end): nobody hears the answer of a call that waited
-- then for each key: units, micros, burst, epoch length, largest packet;
--   epoch, used and back of it, used and back of the one before, owed, want
-- Answers {{now, then for each key grant, wait, epoch, rest, -1}, {name, time, name, time ...}}
-- A key that is not one of this script costs itself only: -1 and zeros, and it stays as it is.
--
-- All times are microseconds since 1970, below 2^52. units * micros is at most 2^52, and so is a
-- product of a remainder with one of them.

-- Quotient and remainder of integers, 0 <= a < 2^53 and b > 0. Exact: a / b is at least 1 / b below
-- the next integer k, and would be rounded up to it only if 1 / b <= k / 2^53, so a >= 2^53.
local function divide(a, b)
  local quotient = math.floor(a / b)
  return quotient, a - quotient * b
end

-- A theoretical arrival time is {microseconds, parts in units of the rate}.
local function plus(tat, part, count, units, micros)
  local whole, rest = divide(count, units)
  local more, new = divide(rest * micros + part, units)
  return tat + whole * micros + more, new
end

-- Units owed at now, rounded up.
local function owed_at(tat, part, now, units, micros)
  if tat < now then return 0 end
  local whole, rest = divide(tat - now, micros)
  local more, left = divide(rest * units + part, micros)
  if left > 0 then more = more + 1 end
  return whole * units + more
end

local function exact(number) return string.format('%.0f', number) end

local HOT_KEPT, HOT_AGAIN, HOT_MAX, FRESH = 60000000, 10000000, 1000, 10000000

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local boot = tonumber(redis.call('GET', KEYS[2]))
if not boot then
  boot = now
  redis.call('SET', KEYS[2], exact(now))
end
local since, prefix, deadline = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local late = deadline >= 0 and now > deadline
local hot = {}
if since >= 0 then
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', exact(now - HOT_KEPT))
  hot = redis.call('ZRANGEBYSCORE', KEYS[1], exact(since), '+inf', 'WITHSCORES',
    'LIMIT', 0, HOT_MAX)
  for i = 2, #hot, 2 do hot[i] = tonumber(hot[i]) end
end

-- State of a key: its five numbers, nothing if there is none, false if somebody else made it.
local function state_of(key)
  local raw = redis.pcall('GET', key)
  if type(raw) == 'table' then
    if string.find(raw.err, '^WRONGTYPE') then return false end
    error(raw)
  end
  if not raw then return nil end
  local s = {string.match(raw, '^(%d+) (%d+) (%d+) (%d+) (%d+)$')}
  return #s == 5 and s
end

local out = {now}
local function exchange(i, s)
  local a = 4 + (i - 3) * 12
  local units, micros, burst = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
  local length, largest = tonumber(ARGV[a + 3]), tonumber(ARGV[a + 4])
  local told = tonumber(ARGV[a + 5])
  local reports = {
    {told, tonumber(ARGV[a + 6]), tonumber(ARGV[a + 7])},
    {told - 1, tonumber(ARGV[a + 8]), tonumber(ARGV[a + 9])},
  }
  local owed = math.min(tonumber(ARGV[a + 10]), 2 * burst)
  local want = tonumber(ARGV[a + 11])
  if late then want = 0 end

  local current = divide(now, length)
  local tat, part, epoch, held, before = now, 0, current, 0, 0
  if s then
    tat, part, epoch = tonumber(s[1]), tonumber(s[2]), tonumber(s[3])
    held, before = tonumber(s[4]), tonumber(s[5])
  else
    -- After a loss of all state, a limit that fills up soon begins empty.
    local full, rest = plus(boot, 0, burst, units, micros)
    local refill = full - boot
    if rest > 0 then refill = refill + 1 end
    if refill <= FRESH and full >= now and now >= boot then tat, part = full, rest end
  end

  -- Make up for the time since the last call.
  if epoch > current + 1 then
    held, before, epoch = held + before, 0, current
  end
  local ends = (epoch + 1) * length
  if before > 0 and now >= ends then
    if tat < ends then tat, part = ends, 0 end
    tat, part = plus(tat, part, before, units, micros)
    before = 0
  end
  ends = ends + length
  if held > 0 and now >= ends then
    if tat < ends then tat, part = ends, 0 end
    tat, part = plus(tat, part, held, units, micros)
    held = 0
  end
  if current > epoch then
    before, held, epoch = held, 0, current
  end
  if tat < now then tat, part = now, 0 end
  if owed_at(tat, part, now, units, micros) > 4 * burst then
    tat, part = plus(now, 0, burst, units, micros)
  end

  -- Book what was used and given back.
  for _, report in ipairs(reports) do
    if report[1] == epoch then
      local used = math.min(report[2], held)
      held = held - used
      held = held - math.min(report[3], held)
      owed = owed + used
    elseif report[1] + 1 == epoch then
      local used = math.min(report[2], before)
      before = before - used
      before = before - math.min(report[3], before)
      owed = owed + used
    end
  end
  tat, part = plus(tat, part, owed, units, micros)

  -- Grant.
  local taken = owed_at(tat, part, now, units, micros) + held + before
  local free = math.max(burst - taken, 0)
  local half = math.min(math.max(math.ceil(free / 2), largest), free)
  local least = math.min(want, largest)
  local grant = 0
  if free >= least then grant = math.min(want, half) end
  held = held + grant
  local wait = 0
  if grant < least then
    local whole, rest = plus(0, 0, math.max(taken + least - burst, 0), units, micros)
    wait = whole
    if rest > 0 then wait = wait + 1 end
  end

  -- When nothing will be left.
  local last, over = tat, part
  ends = (epoch + 1) * length
  for _, count in ipairs({before, held}) do
    if count > 0 then
      if last < ends then last, over = ends, 0 end
      last, over = plus(last, over, count, units, micros)
    end
    ends = ends + length
  end
  if over > 0 then last = last + 1 end
  local rest = last - now
  if rest == 0 then
    if s then redis.call('DEL', KEYS[i]) end
  else
    local state = string.format('%.0f %.0f %.0f %.0f %.0f', tat, part, epoch, held, before)
    redis.call('SET', KEYS[i], state, 'PX', exact(math.ceil(rest / 1000) + 2))
    if since >= 0 then
      local name = string.sub(KEYS[i], prefix + 1)
      local listed = redis.call('ZSCORE', KEYS[1], name)
      if not s or not listed or now >= tonumber(listed) + HOT_AGAIN then
        redis.call('ZADD', KEYS[1], exact(now), name)
        redis.call('PEXPIRE', KEYS[1], exact(HOT_KEPT / 1000))
      end
    end
  end
  return {grant, wait, epoch, rest, -1}
end

for i = 3, #KEYS do
  local s = state_of(KEYS[i])
  local answer = {-1, 0, 0, 0, 0}
  if s ~= false then answer = exchange(i, s) end
  for _, number in ipairs(answer) do out[#out + 1] = number end
end
return {out, hot}
