-- How a leaky bucket decides. Scripts have this file after lib_funnel.lua.
--
-- Amounts are costs, in us and rem. A question has all of its fields from the start: adding
-- one to the table later may cost as much as all the rest.

local funnel = {}
kinds.f = funnel

-- read returns the question that begins at an argument, and the index after it.
function funnel.read(key, at)
  local arg = ARGV
  return {
    key = key, kind = funnel, rate = arg[at], fus = arg[at + 1] + 0, frem = arg[at + 2] + 0, horizon = arg[at + 3] + 0,
    ask = arg[at + 4] + 0, rest = arg[at + 5] + 0, own = 0, own_rest = 0,
    D = 0, st = false, us = 0, rem = 0, told = false, dry = false,
  }, at + 6
end

-- look reads the counter of the question.
function funnel.look(q, now)
  q.D = tonumber((rated(q.rate)))
  q.st = read_funnel(q.key, q.rate, now)
  q.us, q.rem = level(q.st.us, q.st.rem, now)
end

-- fits reports whether there is room for the cost that is asked for.
function funnel.fits(q)
  local us, rem = add(q.us, q.rem, q.ask, q.rest, q.D)
  return not less(q.fus, q.frem, us, rem)
end

-- left sets what is to be booked to as many units as fit, and returns how many. From an
-- argument on there are the costs of n, n/2, n/4 … 1 units, n a power of 2, and the most units
-- that may be taken. It tries these steps in order and takes each that fits.
function funnel.left(q, from)
  local most, step, taken = ARGV[#ARGV] + 0, 2 ^ ((#ARGV - from) / 2 - 1), 0
  for at = from, #ARGV - 1, 2 do
    q.ask, q.rest = add(q.own, q.own_rest, ARGV[at] + 0, ARGV[at + 1] + 0, q.D)
    if taken + step <= most and funnel.fits(q) then
      taken, q.own, q.own_rest = taken + step, q.ask, q.rest
    end
    step = step / 2
  end
  return taken
end

-- book adds what is to be booked, and stores the bucket.
function funnel.book(q, now)
  local st = q.st
  q.us, q.rem = add(q.us, q.rem, q.own, q.own_rest, q.D)
  st.us, st.rem = add(now, 0, q.us, q.rem, q.D)
  st.born = now
  write_funnel(q.key, st, q.rate, now, q.horizon)
end

-- tell returns the level.
function funnel.tell(q)
  return int(q.us), int(q.rem)
end
