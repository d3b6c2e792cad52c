-- How a sliding log decides: one member of a sorted set per unit, scored by the
-- time at which it was admitted. A member that is exactly one window old no
-- longer counts. This file follows lib.lua in the scripts that ask one.
--
-- A question q has its key, the limit and width in us. Amounts are units.

local log = {}

-- look reads what the question is about.
function log.look(q, now)
  q.all = members(q.key)
  q.count = redis.call('ZCOUNT', q.key, '(' .. int(now - q.width), '+inf')
  q.found = q.found or q.count -- before anything was booked
  return q
end

-- fits tells whether there is room for n units.
function log.fits(q, n)
  return q.count + n <= q.limit
end

-- leaves returns how long until the member of a rank (from the oldest on, or
-- from the newest one back if negative) is one window old.
function log.leaves(q, rank, now)
  local m = redis.call('ZRANGE', q.key, int(rank), int(rank), 'WITHSCORES')
  if not m[2] then
    return 0
  end
  return math.max(tonumber(m[2]) + q.width - now, 0)
end

-- lasts returns how long until the last one leaves.
function log.lasts(q, now)
  return q.count > 0 and log.leaves(q, -1, now) or 0
end

-- book counts n units. A Redis that is out of memory refuses to add, and says so
-- only before anything else was written: tidy() comes afterwards.
function log.book(q, n, now)
  local stamp = int(now)
  enter(q.key, now, redis.call('ZCOUNT', q.key, stamp, stamp), n)
  q.count, q.all = q.count + n, q.all + n
end

-- tidy has the log end in time, and removes what has left.
function log.tidy(q, now)
  redis.call('PEXPIRE', q.key, int(math.min(math.ceil(log.lasts(q, now) / 1000) + SLACK, FOREVER)))
  redis.call('ZREMRANGEBYSCORE', q.key, '-inf', int(now - q.width))
  q.all = q.count
end

-- tell appends what is counted to an answer, and the waits: until enough have
-- left for n units that were refused (nil: none were), and until all have.
function log.tell(q, answer, now, n)
  local wait = 0
  if n and n <= q.limit then
    wait = log.leaves(q, q.all - q.count + (q.found + n - q.limit) - 1, now)
  end
  answer[#answer + 1] = int(q.count)
  answer[#answer + 1] = int(wait)
  answer[#answer + 1] = int(log.lasts(q, now))
end
