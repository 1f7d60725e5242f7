-- Queues of requests: payloads that wait until the limits of their rule let them leave. One call is
-- one request for a decision (ask), or one turn of the mover, which lets leave what may (move).
--
-- KEYS, all with the hash tag of one queue:
--   1 waiting    stream: bucket, hits, order, since, attempt, id, payload
--   2 ready      stream for the workers, group `workers`: payload, id, attempt, since, entry
--   3 dead       stream: payload, id, attempt, since, reason
--   4 order      sorted set of all that wait, by name: bucket:order:hits:entry
--   5 due        sorted set: bucket with something that waits, and when its first may leave
--   6 buckets    hash: bucket to its state
--   7 drained    sorted set: bucket, and when nothing of it is used
--   8 ids        sorted set: id of a caller, and until when it is known
--   9 ahead      hash: bucket to the hits that wait for it
--  10 meta       hash: clock, mover, mover_at, and rule:TAG to the limits of a rule; of the last turn
--                its number (turns), how many waited and were ready, up to which entry of `ready`
--                all that is not pending was acknowledged (known), up to which that is in doubt,
--                and how often workers had been removed from groups of this server (removed)
--
-- A bucket is TAG of its rule (16 digits) and its key (32 digits). Limits are written as
-- `KIND units micros room`, KIND t (token bucket, room in units) or l (leaky bucket, room in
-- microseconds). `buckets` and `drained` have turn:MOVER as well: what its last turn counted, until
-- the mover has heard of it. All times are microseconds since 1970, below 2^52; units * micros is at most 2^52.
-- A bucket's state is the time of the last charge, and for each limit the theoretical arrival time
-- (microseconds, and parts in units of the rate) with the rate that it is in.

local WAITING, READY, DEAD, ORDER, DUE = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local BUCKETS, DRAINED, IDS, AHEAD, META = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local GROUP, OWN = 'workers', 'limiter'
-- Microseconds: an id is known, a mover is alive after its last turn, workers may leave the oldest
-- unread before nothing more leaves.
local KNOWN, ALIVE, UNREAD = 300000000, 1000000, 1000000
-- Entries that one turn gives back, lets die of age, and takes over from a worker.
local BACK_MAX, OLD_MAX, SWEEP, TAKE_MAX = 100, 100, 100, 1000

-- Quotient and remainder of integers, 0 <= a < 2^53 and b > 0: lease.lua says why it is exact.
local function divide(a, b)
  local quotient = math.floor(a / b)
  return quotient, a - quotient * b
end

local function plus(tat, part, count, limit)
  local whole, rest = divide(count, limit.units)
  local more, new = divide(rest * limit.micros + part, limit.units)
  return tat + whole * limit.micros + more, new
end

-- Units owed at now, rounded up.
local function owed_at(tat, part, now, limit)
  if tat < now then return 0 end
  local whole, rest = divide(tat - now, limit.micros)
  local more, left = divide(rest * limit.units + part, limit.micros)
  if left > 0 then more = more + 1 end
  return whole * limit.units + more
end

local function exact(number) return string.format('%.0f', number) end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

local function limits_of(text)
  local all = {}
  for kind, units, micros, room in string.gmatch(text, '(%a) (%d+) (%d+) (%d+)') do
    all[#all + 1] = {
      kind = kind, units = tonumber(units), micros = tonumber(micros), room = tonumber(room),
    }
  end
  return all
end

local function store(bucket, limits, state)
  local text, latest = {exact(now)}, now
  for i, limit in ipairs(limits) do
    local tat, part = state[i][1], state[i][2]
    text[#text + 1] = string.format('%.0f %.0f %.0f %.0f', tat, part, limit.units, limit.micros)
    if part > 0 then tat = tat + 1 end
    if tat > latest then latest = tat end
  end
  redis.call('HSET', BUCKETS, bucket, table.concat(text, ' '))
  redis.call('ZADD', DRAINED, exact(latest), bucket)
end

-- The state of a bucket at now: for each limit {tat, part}. What is converted, because the clock
-- was set back or the limit is another one, is kept: converted anew each time, it would never end.
local function state_of(bucket, limits)
  local all, converted = {}, false
  local raw = redis.call('HGET', BUCKETS, bucket)
  local at, rest = string.match(raw or '', '^(%d+)(.*)$')
  for tat, part, units, micros in string.gmatch(rest or '', '(%d+) (%d+) (%d+) (%d+)') do
    local limit = limits[#all + 1]
    if not limit then break end
    tat, part = tonumber(tat), tonumber(part)
    -- The clock was set back: what was owed then is owed now.
    if now < tonumber(at) then
      tat, converted = tat - (tonumber(at) - now), true
    end
    local old = {units = tonumber(units), micros = tonumber(micros)}
    local same = old.units == limit.units and old.micros == limit.micros
    if tat < now then
      tat, part = now, 0
    elseif not same then
      tat, part = plus(now, 0, owed_at(tat, part, now, old), limit)
      converted = true
    end
    if limit.kind == 't' and owed_at(tat, part, now, limit) > limit.room then
      tat, part = plus(now, 0, limit.room, limit)
      converted = true
    end
    all[#all + 1] = {tat, part}
  end
  while #all < #limits do all[#all + 1] = {now, 0} end
  if converted then store(bucket, limits, all) end
  return all
end

-- When so many hits may leave, at now or later.
local function leaves_at(limits, state, hits)
  local latest = now
  for i, limit in ipairs(limits) do
    local tat, part = state[i][1], state[i][2]
    local at
    if limit.kind == 't' then
      if hits > limit.room then
        tat, part = plus(tat, part, hits - limit.room, limit)
      else
        local back, rest = plus(0, 0, limit.room - hits, limit)
        tat, part = tat - back, part - rest
      end
      at = tat
      if part > 0 then at = at + 1 end
    else
      at = tat - limit.room
      if part > 0 then at = at + 1 end
    end
    if at > latest then latest = at end
  end
  return latest
end

-- When the last of so many hits may leave, of which `hits` come last.
local function leaves_behind(limits, state, ahead, hits)
  local moved = {}
  for i, limit in ipairs(limits) do
    moved[i] = {plus(state[i][1], state[i][2], ahead, limit)}
  end
  return leaves_at(limits, moved, hits)
end

local function charge(bucket, limits, state, hits)
  for i, limit in ipairs(limits) do
    state[i] = {plus(state[i][1], state[i][2], hits, limit)}
  end
  store(bucket, limits, state)
end

-- Forgets buckets of which nothing is used, and ids.
local function sweep()
  local all = redis.call('ZRANGEBYSCORE', DRAINED, '-inf', exact(now), 'LIMIT', 0, SWEEP)
  for _, bucket in ipairs(all) do
    redis.call('HDEL', BUCKETS, bucket)
    redis.call('ZREM', DRAINED, bucket)
  end
  redis.call('ZREMRANGEBYSCORE', IDS, '-inf', exact(now))
end

-- Everything that waits is looked at anew: its times were of another clock, or of other limits.
local function all_due()
  redis.call('ZUNIONSTORE', DUE, 1, DUE, 'WEIGHTS', 0)
end

local function field(fields, name)
  for i = 1, #fields, 2 do
    if fields[i] == name then return fields[i + 1] end
  end
end

local function padded(id)
  local ms, number = string.match(id, '^(%d+)-(%d+)$')
  return string.rep('0', 15 - #ms) .. ms .. '-' .. string.rep('0', 20 - #number) .. number
end

local function first_of(bucket)
  return redis.call('ZRANGEBYLEX', ORDER, '[' .. bucket .. ':', '(' .. bucket .. ';',
    'LIMIT', 0, 1)[1]
end

local function parts(member)
  return string.match(member, '^[^:]+:([^:]+):(%d+):(.+)$')
end

-- Sets when the first of a bucket may leave.
local function schedule(bucket, limits, state)
  local member = first_of(bucket)
  if not member then
    redis.call('ZREM', DUE, bucket)
    redis.call('HDEL', AHEAD, bucket)
    return
  end
  local _, hits = parts(member)
  redis.call('ZADD', DUE, exact(leaves_at(limits, state, tonumber(hits))), bucket)
end

-- Puts an entry behind those of its bucket that have an earlier `order`; one without has the next.
local function wait(bucket, hits, order, since, attempt, id, payload)
  local entry = redis.call('XADD', WAITING, '*', 'bucket', bucket, 'hits', hits, 'order',
    order or '', 'since', since, 'attempt', attempt, 'id', id, 'payload', payload)
  local place = order or padded(entry)
  local member = bucket .. ':' .. place .. ':' .. hits .. ':' .. entry
  redis.call('ZADD', ORDER, 0, member)
  redis.call('HINCRBY', AHEAD, bucket, hits)
  return entry, member
end

local function remove(bucket, member, hits, entry)
  redis.call('XDEL', WAITING, entry)
  redis.call('ZREM', ORDER, member)
  redis.call('HINCRBY', AHEAD, bucket, '-' .. hits)
end

if ARGV[1] == 'ask' then
  -- ARGV[2] bucket, ARGV[3] hits, ARGV[4] limits, ARGV[5] depth, ARGV[6] age,
  -- ARGV[7] id of the payload, '' without one, ARGV[8] 1 if the caller made it,
  -- ARGV[9] payload
  -- Answers {what became of it, wait, number of those ahead, microseconds until nothing of each
  -- limit is used}: 0 within, 1 over, 2 queued, 3 full, 4 would wait too long, 5 queued before.
  local bucket, hits, limits = ARGV[2], tonumber(ARGV[3]), limits_of(ARGV[4])
  sweep()
  local state = state_of(bucket, limits)
  local function answer(became, wait, ahead)
    local all = {became, wait, ahead}
    for i, one in ipairs(state) do
      local rest = one[1] - now
      if one[2] > 0 then rest = rest + 1 end
      all[#all + 1] = rest
    end
    return all
  end
  local has = ARGV[7] ~= ''
  if has and ARGV[8] == '1' and redis.call('ZSCORE', IDS, ARGV[7]) then
    return answer(5, 0, 0)
  end
  local waits = redis.call('ZSCORE', DUE, bucket)
  local ahead = waits and tonumber(redis.call('HGET', AHEAD, bucket)) or 0
  local leaves = leaves_behind(limits, state, ahead, hits)
  if not waits and leaves <= now then
    charge(bucket, limits, state, hits)
    return answer(0, 0, 0)
  end
  local left = math.max(leaves - now, 1)
  if not has then return answer(1, left, 0) end
  if redis.call('XLEN', WAITING) >= tonumber(ARGV[5]) then return answer(3, left, 0) end
  if left > tonumber(ARGV[6]) then return answer(4, left, 0) end
  local _, member = wait(bucket, ARGV[3], nil, exact(now), '1', ARGV[7], ARGV[9])
  if not waits then redis.call('ZADD', DUE, exact(leaves), bucket) end
  if ARGV[8] == '1' then redis.call('ZADD', IDS, exact(now + KNOWN), ARGV[7]) end
  local number = redis.call('ZLEXCOUNT', ORDER, '[' .. bucket .. ':', '(' .. member)
  return answer(2, left, number)
end

-- ARGV[2] instance of the mover, ARGV[3] entries that leave at most, ARGV[4] age, ARGV[5]
-- visibility in milliseconds, ARGV[6] attempts, ARGV[7] most dead letters, ARGV[8] a number that the
-- mover changes with each answer that it gets, ARGV[9] what its access list is known to refuse, as in
-- the answer, then for each rule of the mover: its tag and its limits.
-- Answers {now, 1 for a turn or 0 where another mover is at work, number of the turn, what an access
-- list refuses (1: INFO, 2: to take over what workers have), when the next may leave (-1: nothing waits), 1 if workers do not
-- read, entries that wait, that workers have or could, dead letters, when the oldest came (-1)}, and
-- what was counted since the last answer that the mover got: entries that left, that came back from
-- workers, that died of age, of attempts, of their hits, dead letters that were dropped, entries
-- that were taken over from workers that were removed, that somebody deleted, and how often the
-- group was another one.

local COUNTS = {
  'left', 'back', 'age', 'attempts', 'hits', 'dropped', 'taken', 'lost', 'remade',
}
local counts = {}
for _, name in ipairs(COUNTS) do counts[name] = 0 end
local function tally(name, more) counts[name] = counts[name] + (more or 1) end

local was = redis.call('HMGET', META, 'clock', 'mover', 'mover_at', 'turns', 'waiting', 'ready',
  'known', 'doubt', 'removed')
local turns, refused = tonumber(was[4] or 0), tonumber(ARGV[9])

local function report(turn, next, unread)
  local oldest = redis.call('XRANGE', WAITING, '-', '+', 'COUNT', 1)[1]
  local all = {
    now, turn, turns, refused, next, unread,
    redis.call('XLEN', WAITING), redis.call('XLEN', READY), redis.call('XLEN', DEAD),
    oldest and tonumber(field(oldest[2], 'since')) or -1,
  }
  -- An answer that came too late is told again with the next one.
  local name = 'turn:' .. ARGV[2]
  local told, number = redis.call('HGET', BUCKETS, name) or '', 0
  local before = {}
  if string.match(told, '^%d+') == ARGV[8] then
    for count in string.gmatch(told, ' (%d+)') do before[#before + 1] = tonumber(count) end
  end
  local text = {ARGV[8]}
  for i, of in ipairs(COUNTS) do
    local count = counts[of] + (before[i] or 0)
    number = number + count
    all[#all + 1], text[#text + 1] = count, exact(count)
  end
  if number > 0 then
    redis.call('HSET', BUCKETS, name, table.concat(text, ' '))
    redis.call('ZADD', DRAINED, exact(now + KNOWN), name)
  end
  return all
end

local since_turn = now - tonumber(was[3] or 0)
if was[2] and was[2] ~= ARGV[2] and since_turn >= 0 and since_turn < ALIVE then
  return report(0, -1, 0)
end
if now < tonumber(was[1] or 0) then all_due() end
turns = turns + 1
redis.call('HSET', META, 'clock', exact(now), 'mover', ARGV[2], 'mover_at', exact(now), 'turns',
  exact(turns))
-- Only a turn takes something from those that wait.
tally('lost', math.max(tonumber(was[5] or 0) - redis.call('XLEN', WAITING), 0))

local age, visibility, attempts = tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
local dead_max = tonumber(ARGV[7])

local changed = false
for i = 10, #ARGV, 2 do
  local name = 'rule:' .. ARGV[i]
  local before = redis.call('HGET', META, name)
  if before ~= ARGV[i + 1] then
    redis.call('HSET', META, name, ARGV[i + 1])
    changed = changed or before
  end
end
if changed then all_due() end

local rules = {}
local function limits_for(bucket)
  local tag = string.sub(bucket, 1, 16)
  if rules[tag] == nil then
    local text = redis.call('HGET', META, 'rule:' .. tag)
    rules[tag] = text and limits_of(text)
  end
  return rules[tag]
end

local function die(reason, payload, id, attempt, since)
  local before = redis.call('XLEN', DEAD)
  redis.call('XADD', DEAD, 'MAXLEN', '=', exact(dead_max), '*', 'payload', payload, 'id', id,
    'attempt', attempt, 'since', since, 'reason', reason)
  tally(reason)
  tally('dropped', before + 1 - redis.call('XLEN', DEAD))
end

-- The group, made anew where somebody deleted it.
local known, doubt, group = was[7], was[8], nil
local has_stream = redis.call('EXISTS', READY) == 1
if has_stream then
  for _, about in ipairs(redis.call('XINFO', 'GROUPS', READY)) do
    if field(about, 'name') == GROUP then group = field(about, 'last-delivered-id') end
  end
else
  tally('lost', tonumber(was[6] or 0))
end
if not group then
  group = has_stream and known or '0-0'
  redis.call('XGROUP', 'CREATE', READY, GROUP, group, 'MKSTREAM')
end

-- Who removes a worker from the group (XGROUP DELCONSUMER) removes from it all that the worker has.
-- So what workers have becomes limiter's own in the group: they acknowledge it as before.
local took_all, removed = true, nil
local function take_over()
  local fresh = redis.pcall('XGROUP', 'CREATECONSUMER', READY, GROUP, OWN)
  if type(fresh) == 'table' then return false end
  for _, worker in ipairs(redis.call('XPENDING', READY, GROUP)[4] or {}) do
    local all = worker[1] ~= OWN
      and redis.call('XPENDING', READY, GROUP, '-', '+', exact(TAKE_MAX), worker[1]) or {}
    if #all == TAKE_MAX then took_all = false end
    for _, about in ipairs(all) do
      local taken = redis.pcall('XCLAIM', READY, GROUP, OWN, '0', about[1], 'IDLE',
        exact(about[3]), 'JUSTID')
      if taken.err then return false end
      -- Somebody deleted the entry.
      if #taken == 0 then tally('lost') end
    end
  end
  -- What workers got since the last turn, and no longer have, may have gone with one of them; and of
  -- another group nobody knows what was acknowledged.
  local stats = refused == 0 and redis.pcall('INFO', 'commandstats') or nil
  if type(stats) == 'string' then
    removed = string.match(stats, 'cmdstat_xgroup|delconsumer:calls=(%d+)') or '0'
  elseif stats then
    refused = 1
  end
  if fresh == 1 and known then
    tally('remade')
    known, doubt = '0-0', group
  elseif known and known ~= group and removed and was[9] and removed ~= was[9] then
    doubt = group
  end
  return true
end
if refused < 2 and not take_over() then refused = 2 end
if refused == 2 then known, doubt = nil, nil end
if doubt then
  local all = redis.call('XRANGE', READY, '(' .. known, doubt, 'COUNT', exact(BACK_MAX))
  local first, last = all[1], all[#all]
  local pending = {}
  if first then
    known = last[1]
    for _, about in ipairs(
      redis.call('XPENDING', READY, GROUP, first[1], last[1], exact(TAKE_MAX))) do
      pending[about[1]] = true
    end
  end
  for _, entry in ipairs(all) do
    if not pending[entry[1]] then
      redis.call('XCLAIM', READY, GROUP, OWN, '0', entry[1], 'FORCE', 'JUSTID')
      tally('taken')
    end
  end
  if #all < BACK_MAX then doubt = nil end
end
if refused < 2 and not doubt and (took_all or not known) then known = group end

-- What workers had for too long comes back, before all that came later.
for _, about in ipairs(
  redis.call('XPENDING', READY, GROUP, 'IDLE', visibility, '-', '+', exact(BACK_MAX))) do
  local entry = redis.call('XRANGE', READY, about[1], about[1])[1]
  local fields = entry and entry[2] or {}
  local payload, id, since = field(fields, 'payload'), field(fields, 'id'), field(fields, 'since')
  local attempt = tonumber(field(fields, 'attempt') or 0)
  local bucket, hits, order = string.match(field(fields, 'entry') or '', '^(%S+) (%d+) (%S+)$')
  if not bucket then
    -- Somebody deleted the entry, or added one that no queue has.
    tally('lost')
  elseif attempt >= attempts then
    die('attempts', payload, id, exact(attempt), since)
  else
    wait(bucket, hits, order, since, exact(attempt + 1), id, payload)
    redis.call('ZADD', DUE, 0, bucket)
    tally('back')
  end
  redis.call('XACK', READY, GROUP, about[1])
  redis.call('XDEL', READY, about[1])
end

-- What was acknowledged goes: all before the first that is not.
local pending = redis.call('XPENDING', READY, GROUP)
if doubt then
  -- Not before it is known.
elseif pending[1] > 0 then
  redis.call('XTRIM', READY, 'MINID', '=', pending[2])
elseif group ~= '0-0' then
  redis.call('XTRIM', READY, 'MINID', '=', group)
  redis.call('XDEL', READY, group)
end

-- What is too old does not wait for its turn.
for _ = 1, OLD_MAX do
  local entry = redis.call('XRANGE', WAITING, '-', '+', 'COUNT', 1)[1]
  local fields = entry and entry[2]
  local since = entry and field(fields, 'since')
  if not entry or tonumber(since) + age >= now then break end
  local bucket, hits, order = field(fields, 'bucket'), field(fields, 'hits'), field(fields, 'order')
  if order == '' then order = padded(entry[1]) end
  die('age', field(fields, 'payload'), field(fields, 'id'), field(fields, 'attempt'), since)
  remove(bucket, bucket .. ':' .. order .. ':' .. hits .. ':' .. entry[1], hits, entry[1])
  redis.call('ZADD', DUE, 0, bucket)
end

local first = redis.call('XRANGE', READY, '(' .. group, '+', 'COUNT', 1)[1]
local unread = first and tonumber(string.match(first[1], '^(%d+)')) * 1000 + UNREAD < now

local next = -1
for _ = 1, tonumber(ARGV[3]) do
  local due = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
  if not due[1] then
    next = -1
    break
  end
  next = tonumber(due[2])
  if next > now or unread then break end
  local bucket = due[1]
  local limits, member = limits_for(bucket), first_of(bucket)
  if not member then
    redis.call('ZREM', DUE, bucket)
    redis.call('HDEL', AHEAD, bucket)
  elseif not limits then
    -- Nobody knows its rate any more: it stays until somebody does, or until it is too old.
    redis.call('ZADD', DUE, exact(now + ALIVE), bucket)
  else
    local order, hits, id = parts(member)
    local state, count = state_of(bucket, limits), tonumber(hits)
    local entry = redis.call('XRANGE', WAITING, id, id)[1]
    local fields = entry and entry[2]
    local since = entry and field(fields, 'since')
    local never = false
    for _, limit in ipairs(limits) do
      never = never or limit.kind == 't' and count > limit.room
    end
    if not entry then
      remove(bucket, member, hits, id)
    elseif never or tonumber(since) + age < now then
      die(never and 'hits' or 'age', field(fields, 'payload'), field(fields, 'id'),
        field(fields, 'attempt'), since)
      remove(bucket, member, hits, id)
    elseif leaves_at(limits, state, count) <= now then
      charge(bucket, limits, state, count)
      local new = {'payload', field(fields, 'payload'), 'id', field(fields, 'id'), 'attempt',
        field(fields, 'attempt'), 'since', since, 'entry', bucket .. ' ' .. hits .. ' ' .. order}
      -- The id has the time at which it was charged, unless the clock was set back.
      local at = exact(math.floor(now / 1000)) .. '-*'
      local added = redis.pcall('XADD', READY, at, unpack(new))
      if type(added) == 'table' then redis.call('XADD', READY, '*', unpack(new)) end
      remove(bucket, member, hits, id)
      tally('left')
    end
    schedule(bucket, limits, state)
  end
end
sweep()
local function note(name, before, value)
  if value and value ~= before then
    redis.call('HSET', META, name, value)
  elseif before and not value then
    redis.call('HDEL', META, name)
  end
end
note('waiting', was[5], exact(redis.call('XLEN', WAITING)))
note('ready', was[6], exact(redis.call('XLEN', READY)))
note('known', was[7], known)
note('doubt', was[8], doubt)
note('removed', was[9], removed)
return report(1, next, unread and 1 or 0)
