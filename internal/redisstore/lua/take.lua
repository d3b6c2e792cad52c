-- Asks counters for units: all of them admit theirs, or nothing is written. Before this file
-- come those of the kinds of counters that are asked, which put themselves into kinds.
--
-- KEYS[i] the counter of check i; one may occur more than once
-- ARGV    a mode: "0" looks, "1" books, "s" books what is said beside, "m" takes what is left
--         of the only check's counter; then per check its kind and
--   f  rate, capacity us, capacity rem, horizon ms, what is asked for (a cost: us, rem). A
--      capacity beyond the funnel's own books ahead
--   w  limit, width us, kept (0: a fixed window), horizon ms, what is asked for
--   l  limit, window us, what is asked for
--         With "s" there follow "1" if it is a dry run, which stands in nobody's way, and what is
--         booked for it, a cost or units and 0: of a counter that occurs several times each
--         check asks for the units of all, and has its own booked. With "m" there follow, for a
--         funnel, the arguments of funnel.left, and for others at most what is asked for is
--         taken
-- Reply   "1" or "0" (booked), Redis' time in us; then per check "1" or "0" (admitted), with "m"
--         how many units were taken, and, as of afterwards,
--   f  level us, level rem
--   w  id of the current bucket, us since it began, buckets as " id:units:last ..."
--   l  units counted, us until enough of them leave (0 when admitted), us until the last one
--      leaves
--         Or "e", reason, index of the check

local now, mode, n, at = clock(), ARGV[1], #KEYS, 2
local asked, admitted, logs, times = {}, true, false, n > 1 and {}

-- All are judged before anything is written.
for i = 1, n do
  local key, kind, fits, q = KEYS[i], kinds[ARGV[at]], nil, nil
  q, at = kind.read(key, at + 1)
  if mode == 's' then
    q.dry, q.own, q.own_rest, at = ARGV[at] == '1', ARGV[at + 1] + 0, ARGV[at + 2] + 0, at + 3
  elseif mode == '1' then
    q.own, q.own_rest = q.ask, q.rest
  end
  local _, why = guard(kind.look, q, now)
  if why then
    return { 'e', why, int(i - 1) }
  end
  if mode == 'm' then
    q.told = int(kind.left(q, at))
    fits = q.told ~= '0'
  else
    fits = kind.fits(q)
    q.told = fits and '1' or '0'
  end
  admitted = admitted and (fits or q.dry)
  if times then
    times[key] = (times[key] or 0) + 1
  end
  logs = logs or kind == kinds.l
  asked[i] = q
end

-- A Redis without memory, and a user who may not run one of the commands, are to
-- be found out before anything is written: with logs those are several. Once one
-- write has passed, Redis lets the others pass that need memory: they come first.
local book = admitted and mode ~= '0'
local steps = not book and {} or not logs and { 'book' } or { n > 1 and 'prove' or '', 'enter', 'book', 'tidy' }
for _, step in ipairs(steps) do
  for i = 1, n do
    local q = asked[i]
    local run = q.told ~= '0' and q.own + q.own_rest > 0 and (step == 'prove' and kinds.l.prove or q.kind[step])
    if run then
      if times and times[q.key] > 1 then -- another check may have written it
        q.kind.look(q, now)
      end
      run(q, now)
    end
  end
end
local q = asked[1]
if n == 1 then
  return { book and '1' or '0', int(now), q.told, q.kind.tell(q, now) }
end
local answer = { book and '1' or '0', int(now) }
for i = 1, n do
  q = asked[i]
  if times[q.key] > 1 then
    q.kind.look(q, now)
  end
  for _, v in ipairs({ q.told, q.kind.tell(q, now) }) do
    answer[#answer + 1] = v
  end
end
return answer
