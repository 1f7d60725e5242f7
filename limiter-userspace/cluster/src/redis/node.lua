-- One call of a node for what nodes report to each other: who is there, and what changed.
--
-- KEYS[1] hash of the nodes: instance to "time text"; KEYS[2] stream of changes, numbered N-0
-- ARGV[1] instance, ARGV[2] beat, leave or stay, ARGV[3] text of a beat
-- ARGV[4] number of the latest change that the node knows
-- then for each change to add: microseconds that are left of it (-1: it does not end), its text
-- Answers {{now, oldest and latest number, number of the first that was added (0: none)},
--   {instance, time, text ...}, {number, instance, end or -1, text ...}}; no nodes but to a beat
--
-- All times are microseconds since 1970, below 2^52.

local DEAD, GONE_MS, KEPT, TOLD = 15000000, 60000, 10000, 200

local function exact(number) return string.format('%.0f', number) end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

local nodes = {}
if ARGV[2] == 'beat' then
  redis.call('HSET', KEYS[1], ARGV[1], exact(now) .. ' ' .. ARGV[3])
  redis.call('PEXPIRE', KEYS[1], GONE_MS)
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    local at, text = string.match(all[i + 1], '^(%d+) (.*)$')
    at = tonumber(at)
    if at and at > now then
      -- The clock was set back: a node that lives will say so again.
      redis.call('HSET', KEYS[1], all[i], exact(now) .. ' ' .. text)
      at = now
    end
    if not at or now - at >= DEAD then
      redis.call('HDEL', KEYS[1], all[i])
    else
      nodes[#nodes + 1] = all[i]
      nodes[#nodes + 1] = at
      nodes[#nodes + 1] = text
    end
  end
elseif ARGV[2] == 'leave' then
  redis.call('HDEL', KEYS[1], ARGV[1])
end

local function number(entry)
  if not entry then return 0 end
  return tonumber(string.match(entry[1], '^(%d+)'))
end

local latest = number(redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1])
local added = 0
for i = 5, #ARGV, 2 do
  -- Numbers of a new stream begin beyond those of one that was lost.
  latest = latest > 0 and latest + 1 or now
  if added == 0 then added = latest end
  local left = tonumber(ARGV[i])
  local ends = left < 0 and -1 or now + left
  redis.call('XADD', KEYS[2], 'MAXLEN', '~', KEPT, exact(latest) .. '-0',
    'from', ARGV[1], 'end', exact(ends), 'text', ARGV[i + 1])
end

local changes = {}
local oldest = 0
if latest > 0 then
  oldest = number(redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1])
  local new = redis.call('XRANGE', KEYS[2], exact(tonumber(ARGV[4]) + 1), '+', 'COUNT', TOLD)
  for _, entry in ipairs(new) do
    local fields = entry[2]
    changes[#changes + 1] = number(entry)
    changes[#changes + 1] = fields[2]
    changes[#changes + 1] = tonumber(fields[4])
    changes[#changes + 1] = fields[6]
  end
end
return {{now, oldest, latest, added}, nodes, changes}
