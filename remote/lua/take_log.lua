-- Asks a sliding log for units: one member of a sorted set per unit, scored by
-- the time at which it was admitted. A member that is exactly one window old no
-- longer counts. A refusal writes nothing.
--
-- KEYS[1] the sorted set
-- ARGV    n, limit, window us, book. n = 0, or book = 0, only looks.
-- Reply   "1" or "0" (allowed), units counted, us until enough of them leave
--         (0 when allowed), us until the last one leaves; or "e", reason

local n, limit, width = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local key, now = KEYS[1], clock()
local all, why = guard(try, 'ZCARD', key)
if not all then
  return { 'e', why }
end

-- leaves returns how long until the member of a rank (from the oldest on, or
-- from the newest one back if negative) is one window old.
local function leaves(rank)
  local m = redis.call('ZRANGE', key, int(rank), int(rank), 'WITHSCORES')
  if not m[2] then
    return 0
  end
  return math.max(tonumber(m[2]) + width - now, 0)
end

local old = int(now - width)
local count = redis.call('ZCOUNT', key, '(' .. old, '+inf')
if count + n > limit then
  local wait = 0
  if n <= limit then
    wait = leaves(all - count + (count + n - limit) - 1)
  end
  return { '0', int(count), int(wait), int(count > 0 and leaves(-1) or 0) }
end

local book = n > 0 and ARGV[4] == '1'
if book then
  redis.call('ZREMRANGEBYSCORE', key, '-inf', old)
  -- Members of one microsecond are numbered on from those that are there. They
  -- leave together, so that a number is never given twice.
  local stamp = int(now)
  local nr = redis.call('ZCOUNT', key, stamp, stamp)
  local done = 0
  while done < n do
    local chunk = {}
    for i = 1, math.min(n - done, 1000) do
      chunk[2 * i - 1] = stamp
      chunk[2 * i] = stamp .. '-' .. int(nr + done)
      done = done + 1
    end
    redis.call('ZADD', key, unpack(chunk))
  end
  count = count + n
end
local reset = count > 0 and leaves(-1) or 0
if book then
  redis.call('PEXPIRE', key, int(math.min(math.ceil(reset / 1000) + SLACK, FOREVER)))
end
return { '1', int(count), '0', int(reset) }
