-- Takes units of counters: either all of them admit theirs, or nothing is written. The files
-- of the kinds that are needed come before this one, and add themselves to kinds.
--
-- KEYS[i] the counter of check i; one may occur more than once
-- ARGV    a mode: "0" reads, "1" books, "s" books given amounts (see below), "m" takes what is
--         left of the only check's counter, "r" books that ahead; behind it "+" for the generations
--         as well.
--         Then per check its kind and
--   f  rate, capacity us, capacity rem, horizon ms, what is asked for (a cost: us, rem). A
--      capacity above that of the rule books ahead
--   w  limit, width us, kept (0: a fixed window), horizon ms, what is asked for
--   l  limit, window us, what is asked for
--         With "s" there follow "1" for a dry run, whose refusal does not affect the others,
--         and what is booked for the check, a cost or units and 0: if a counter occurs several
--         times, each check asks for the units of all, and books its own. With "m" there follow,
--         for a leaky bucket, the arguments of funnel.left; from others at most what is asked
--         for is taken. With "r" there follows the capacity of the rule (us, rem)
-- Reply   "1" or "0" (booked), Redis' time in us; then per check "1" or "0" (admitted), with "m"
--         how many units were taken, and the state after the call:
--   f  level us, level rem
--   w  id of the current bucket, us since it began, buckets as " id:units:last ..."
--   l  units counted, us until enough of them leave (0 when admitted), us until the last one
--      leaves
--         With "+" there follow the generation, when the newest unit was booked, and "1" if the
--         counter was last written with another rate or width, else "0", as one text; behind it
--         until when callers wait that have booked a leaky bucket ahead, if there are any.
--         Or "e", reason, index of the check
--
-- A kind has these functions. read returns the question that begins at an argument, and the index
-- after it; the question has all of its fields from the start, because adding one later may cost
-- as much as all the rest. look reads the counter. fits reports whether there is room for what
-- is asked for; left sets what is to be booked to as much as there is room for, and returns how
-- many units that is. book stores what is to be booked, and tell returns the state after the call.

local now, mode, n, at = clock(), sub(ARGV[1], 1, 1), #KEYS, 2
local more = #ARGV[1] > 1
local asked, admitted, logs, times = {}, true, false, n > 1 and {}

-- All checks are decided before anything is written.
for i = 1, n do
  local key, kind, fits, q = KEYS[i], kinds[ARGV[at]], nil, nil
  q, at = kind.read(key, at + 1)
  if mode == 's' then
    q.dry, q.own, q.own_rest, at = ARGV[at] == '1', ARGV[at + 1] + 0, ARGV[at + 2] + 0, at + 3
  elseif mode == '1' or mode == 'r' then
    q.own, q.own_rest = q.ask, q.rest
  end
  local _, why = guard(kind.look, q, now)
  if why then
    return { 'e', why, int(i - 1) }
  end
  if mode == 'm' then
    q.admitted = int(kind.left(q, at))
    fits = q.admitted ~= '0'
  else
    fits = kind.fits(q)
    q.admitted = fits and '1' or '0'
  end
  admitted = admitted and (fits or q.dry)
  if times then
    times[key] = (times[key] or 0) + 1
  end
  logs = logs or kind == kinds.l
  asked[i] = q
end

-- Missing memory and missing permissions must be detected before anything is written.
-- With logs there are several commands: prove tests the permissions. After one successful
-- write Redis allows all others that need memory, so writes that need it come first.
local book = admitted and mode ~= '0'
local steps = not book and {} or not logs and { 'book' } or { n > 1 and 'prove' or '', 'enter', 'book', 'tidy' }
for _, step in ipairs(steps) do
  for i = 1, n do
    local q = asked[i]
    local run = q.admitted ~= '0' and q.own + q.own_rest > 0 and (step == 'prove' and kinds.l.prove or q.kind[step])
    if run then
      if times and times[q.key] > 1 then -- another check may have written it
        q.kind.look(q, now)
      end
      run(q, now)
    end
  end
end
local q = asked[1]
if n == 1 and not more then
  return { book and '1' or '0', int(now), q.admitted, q.kind.tell(q, now) }
end
local answer = { book and '1' or '0', int(now) }
for i = 1, n do
  q = asked[i]
  if times and times[q.key] > 1 then
    q.kind.look(q, now)
  end
  for _, v in ipairs({ q.admitted, q.kind.tell(q, now) }) do
    answer[#answer + 1] = v
  end
  if more then
    if not book then -- the caller knows the generation from now on
      remember(q.key, now, now, q.st.gen, q.horizon)
    end
    local text, waiting = int(q.st.gen) .. ' ' .. int(q.st.born) .. (q.st.converted and ' 1' or ' 0'), q.st.waiting or 0
    answer[#answer + 1] = waiting > now and text .. ' ' .. int(waiting) or text
  end
end
return answer
