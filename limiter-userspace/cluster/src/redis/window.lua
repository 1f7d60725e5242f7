-- One call of a node for windows of one shard: window.rs, in numbers that a double holds exactly.
--
-- KEYS[1] number of units logged so far (any other where there is no log), KEYS[2..] one for each
-- key
-- ARGV[1] after it nothing is granted (-1: no end), as lease.lua says
-- then for each key: kind (fixed, counter, log), length, quota, largest packet, life;
--   want, number of grants that units are given back of; then for each: epoch, units
-- Answers {{now, then for each key grant, wait, epoch, rest, until}, {}}
-- A key that is not one of this script costs itself only: -1 and zeros, and it stays as it is.
--
-- The epoch of a log's grant is its time. All times are microseconds, below 2^51; a length is at
-- most 2^42, a quota that is counted 2^40.

local PARTS = 1024

-- Quotient and remainder of integers, 0 <= a < 2^53 and b > 0: exact, as lease.lua says.
local function divide(a, b)
  local quotient = math.floor(a / b)
  return quotient, a - quotient * b
end

local function divide_up(a, b)
  local quotient, rest = divide(a, b)
  if rest > 0 then quotient = quotient + 1 end
  return quotient
end

local function exact(number) return string.format('%.0f', number) end

local function granted(quota, largest, taken, want)
  local free = math.max(quota - taken, 0)
  if free < math.min(want, largest) then return 0 end
  return math.min(want, math.max(math.ceil(free / 2), largest), free)
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local deadline = tonumber(ARGV[1])
local late = deadline >= 0 and now > deadline
local out = {now}

-- Answer of a command on a key; nothing of another kind of key than the command is for.
local function own(command, key, ...)
  local value = redis.pcall(command, key, ...)
  if type(value) ~= 'table' or not value.err then return value end
  if string.find(value.err, '^WRONGTYPE') then return nil end
  error(value)
end

local function counts(key, kind, length, quota, largest, backs, want)
  local current = divide(now, length)
  local epoch, count, before = current, 0, 0
  local raw = own('GET', key)
  if raw == nil then return end
  if raw then
    local s = {string.match(raw, '^(%d+) (%d+) (%d+)$')}
    if #s ~= 3 then return end
    epoch, count, before = tonumber(s[1]), tonumber(s[2]), tonumber(s[3])
  end
  if epoch > current + 1 then epoch = current end
  if epoch < current then
    if epoch + 1 == current then before = count else before = 0 end
    count, epoch = 0, current
  end
  for i = 1, #backs, 2 do
    if backs[i] == epoch then count = count - math.min(backs[i + 1], count) end
  end
  local ends = (epoch + 1) * length
  local carried = 0
  if kind == 'counter' then
    local parts = divide_up(math.min(ends - now, length) * PARTS, length)
    carried = divide_up(before * parts, PARTS)
  end
  local grant = granted(quota, largest, count + carried, want)
  count = count + grant
  local left = ends - now
  local kept = left
  if kind == 'counter' then kept = left + length end
  if count > 0 or before > 0 then
    redis.call('SET', key, string.format('%.0f %.0f %.0f', epoch, count, before),
      'PX', exact(math.ceil(kept / 1000) + 2))
  elseif raw then
    redis.call('DEL', key)
  end
  local wait = 0
  if grant < want then wait = left end
  return grant, wait, epoch, left, left
end

local function log(key, length, quota, largest, life, backs, want)
  local kept = length + life
  if not own('ZREMRANGEBYSCORE', key, '-inf', exact(now - kept)) then return end
  -- Units of one time are alike: as many of them go as are given back.
  for i = 1, #backs, 2 do
    local at, left = exact(backs[i]), backs[i + 1]
    while left > 0 do
      local some = exact(math.min(left, 1000))
      local found = redis.call('ZRANGEBYSCORE', key, at, at, 'LIMIT', '0', some)
      if #found == 0 then break end
      redis.call('ZREM', key, unpack(found))
      left = left - #found
    end
  end
  local grant = granted(quota, largest, redis.call('ZCARD', key), want)
  if grant > 0 then
    -- No two units have the same name, whatever the clock does.
    local serial = redis.call('INCRBY', KEYS[1], exact(grant)) - grant
    local entries = {}
    for i = 1, grant do
      entries[#entries + 1] = exact(now)
      entries[#entries + 1] = exact(serial + i)
      if #entries == 1000 or i == grant then
        redis.call('ZADD', key, unpack(entries))
        entries = {}
      end
    end
  end
  redis.call('PEXPIRE', key, exact(math.ceil(kept / 1000) + 2))
  local wait = 0
  if grant < want then
    local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
    if first[2] then wait = math.max(tonumber(first[2]) + kept - now, 0) end
  end
  return grant, wait, now, kept, -1
end

local a = 2
for i = 2, #KEYS do
  local kind = ARGV[a]
  local n = {}
  for at = 1, 6 do n[at] = tonumber(ARGV[a + at]) end
  local length, quota, largest, life, want, grants = unpack(n)
  a = a + 7
  local backs = {}
  for at = 1, 2 * grants do backs[at] = tonumber(ARGV[a + at - 1]) end
  a = a + 2 * grants
  if late then want = 0 end
  local answer
  if kind == 'log' then
    answer = {log(KEYS[i], length, quota, largest, life, backs, want)}
  else
    answer = {counts(KEYS[i], kind, length, quota, largest, backs, want)}
  end
  if not answer[1] then answer = {-1, 0, 0, 0, 0} end
  for _, number in ipairs(answer) do out[#out + 1] = number end
end
return {out, {}}
