-- How a sliding log decides: one member of a sorted set per unit, scored by the
-- time at which it was admitted. A member that is exactly one window old no
-- longer counts. Scripts have this file after lib_log.lua. Amounts are units.

local log = {}
kinds.l = log

function log.read(key, at)
  return {
    key = key, kind = log, limit = ARGV[at] + 0, width = ARGV[at + 1] + 0,
    ask = ARGV[at + 2] + 0, rest = 0, own = 0, own_rest = 0, all = 0, count = 0, found = false, admitted = false, dry = false,
  }, at + 3
end

function log.look(q, now)
  q.all = members(q.key)
  q.count = call('ZCOUNT', q.key, '(' .. int(now - q.width), '+inf')
  q.found = q.found or q.count -- before anything was booked
end

function log.fits(q)
  return q.count + q.ask <= q.limit
end

-- If there is no room, left changes the question to one unit, for the wait that tell returns.
function log.left(q)
  q.own = math.max(math.min(q.ask, q.limit - q.count), 0)
  q.ask = math.max(q.own, 1)
  return q.own
end

-- leaves returns how long until the member of a rank (counted from the oldest one,
-- or from the newest one if negative) is one window old.
function log.leaves(q, rank, now)
  local m = call('ZRANGE', q.key, int(rank), int(rank), 'WITHSCORES')
  if not m[2] then
    return 0
  end
  return math.max(tonumber(m[2]) + q.width - now, 0)
end

-- lasts returns how long until the newest member leaves.
function log.lasts(q, now)
  return q.count > 0 and log.leaves(q, -1, now) or 0
end

-- prove fails if the user may not run the commands that write a counter, of any kind. It
-- changes nothing: XX is used where the key or member is missing, NX where the key exists.
function log.prove(q)
  if q.st then
    call('SET', q.key, '', q.st.absent and 'XX' or 'NX', 'PX', '1')
  else
    call('ZADD', q.key, 'XX', '0', '') -- which also fails without memory
    call('ZREMRANGEBYSCORE', q.key, '(0', '0')
  end
end

-- enter adds the units that are to be booked. A Redis that is out of memory refuses that only
-- as long as the script has written nothing else: tidy() comes afterwards.
function log.enter(q, now)
  local stamp = int(now)
  enter(q.key, now, call('ZCOUNT', q.key, stamp, stamp), q.own)
  q.count, q.all = q.count + q.own, q.all + q.own
end

-- tidy sets the log's TTL, and removes members that no longer count.
function log.tidy(q, now)
  call('PEXPIRE', q.key, int(math.min(math.ceil(log.lasts(q, now) / 1000) + SLACK, FOREVER)))
  call('ZREMRANGEBYSCORE', q.key, '-inf', int(now - q.width))
  q.all = q.count
end

function log.tell(q, now)
  local wait = 0
  if q.admitted == '0' and q.ask <= q.limit then
    wait = log.leaves(q, q.all - q.count + (q.found + q.ask - q.limit) - 1, now)
  end
  return int(q.count), int(wait), int(log.lasts(q, now))
end
