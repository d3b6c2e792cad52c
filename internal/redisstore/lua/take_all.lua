-- Asks several counters for units: all of them admit theirs, or nothing is
-- written.
--
-- KEYS[i] the counter of check i; one may occur more than once
-- ARGV    "1" to book, "0" to only look; then per check its kind, "1" if it is a
--         dry run, which stands in nobody's way, and
--   f  rate, capacity us, capacity rem, horizon ms, what it is judged by (a cost:
--      us, rem), what is booked for it (us, rem)
--   w  limit, width us, kept, horizon ms, what it is judged by, what is booked
--   l  limit, window us, what it is judged by, what is booked
--         Both are numbers of units there. A counter that occurs several times
--         has each check judged by the units of all, and booked for its own.
-- Reply   "1" or "0" (booked), Redis' time in us; then per check what take_funnel, take_window or
--         take_log answer, as of afterwards. Or "e", reason, index of the check

local kinds = {}

-- may_set fails for a user who may not set a string. It sets none: only one that
-- is there if it is not, and the reverse.
local function may_set(q)
  redis.call('SET', q.key, '', q.st.absent and 'XX' or 'NX', 'PX', '1')
end

kinds.f = {
  fields = 8,
  read = function(q, arg)
    q.rate, q.fus, q.frem, q.horizon = arg(1), arg(2), arg(3), arg(4)
    q.aus, q.arem, q.us_own, q.rem_own = arg(5), arg(6), arg(7), arg(8)
    q.own = q.us_own + q.rem_own
  end,
  look = funnel.look,
  fits = function(q)
    return funnel.fits(q, q.aus, q.arem)
  end,
  book = function(q, now)
    funnel.pour(q, q.us_own, q.rem_own)
    funnel.save(q, now)
  end,
  prove = may_set,
  tell = funnel.tell,
}

kinds.w = {
  fields = 6,
  read = function(q, arg)
    q.limit, q.width, q.kept, q.horizon, q.ask, q.own = arg(1), arg(2), arg(3), arg(4), arg(5), arg(6)
  end,
  look = window.look,
  fits = function(q)
    return window.fits(q, q.ask)
  end,
  book = function(q, now)
    window.book(q, q.own, now)
  end,
  prove = may_set,
  tell = window.tell,
}

kinds.l = {
  fields = 4,
  read = function(q, arg)
    q.limit, q.width, q.ask, q.own = arg(1), arg(2), arg(3), arg(4)
  end,
  look = log.look,
  fits = function(q)
    return log.fits(q, q.ask)
  end,
  prove = function(q)
    redis.call('ZADD', q.key, 'XX', '0', '') -- adds nothing, but needs memory
    redis.call('ZREMRANGEBYSCORE', q.key, '(0', '0') -- removes nothing
  end,
  enter = function(q, now)
    log.book(q, q.own, now)
  end,
  tidy = log.tidy,
  tell = function(q, answer, now)
    log.tell(q, answer, now, not q.fits and q.ask or nil)
  end,
}

local now = clock()
local asked, times, admitted = {}, {}, true

-- All are judged before anything is written.
local at, logs = 2, false
for i, key in ipairs(KEYS) do
  local kind = kinds[ARGV[at]]
  local q = { key = key, kind = kind, dry = ARGV[at + 1] == '1' }
  logs = logs or kind == kinds.l
  kind.read(q, function(nr)
    return tonumber(ARGV[at + 1 + nr]) or ARGV[at + 1 + nr] -- a rate is text
  end)
  at = at + 2 + kind.fields
  local _, why = guard(kind.look, q, now)
  if why then
    return { 'e', why, int(i - 1) }
  end
  q.fits = kind.fits(q)
  admitted = admitted and (q.fits or q.dry)
  times[key] = (times[key] or 0) + 1
  asked[i] = q
end

-- again looks once more at a counter that another check may have written.
local function again(q)
  if times[q.key] > 1 then
    q.kind.look(q, now)
  end
end

-- each runs a step of those kinds that have it, for all that is to be booked.
local function each(step)
  for _, q in ipairs(asked) do
    local run = q.fits and q.own > 0 and q.kind[step]
    if run then
      again(q)
      run(q, now)
    end
  end
end

-- A Redis without memory, and a user who may not run one of the commands, are to
-- be found out before anything is written: with logs those are several. Once one
-- write has passed, Redis lets the others pass that need memory: they come first.
local book = admitted and ARGV[1] == '1'
if book then
  if logs and #asked > 1 then
    each('prove')
  end
  each('enter')
  each('book')
  each('tidy')
end
local answer = { book and '1' or '0', int(now) }
for _, q in ipairs(asked) do
  again(q)
  answer[#answer + 1] = q.fits and '1' or '0'
  q.kind.tell(q, answer, now)
end
return answer
