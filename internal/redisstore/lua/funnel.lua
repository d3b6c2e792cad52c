-- How a leaky bucket decides. Scripts have this file after lib_funnel.lua. Amounts are costs,
-- in us and rem.

local funnel = {}
kinds.f = funnel

function funnel.read(key, at)
  local arg = ARGV
  return {
    key = key, kind = funnel, rate = arg[at], fus = arg[at + 1] + 0, frem = arg[at + 2] + 0, horizon = arg[at + 3] + 0,
    ask = arg[at + 4] + 0, rest = arg[at + 5] + 0, own = 0, own_rest = 0,
    D = 0, st = false, us = 0, rem = 0, admitted = false, dry = false,
  }, at + 6
end

function funnel.look(q, now)
  q.D = tonumber((rated(q.rate)))
  q.st = read_funnel(q.key, q.rate, now)
  q.us, q.rem = level(q.st.us, q.st.rem, now)
end

function funnel.fits(q)
  local us, rem = add(q.us, q.rem, q.ask, q.rest, q.D)
  return not less(q.fus, q.frem, us, rem)
end

-- For left there are, from an argument on, the costs of n, n/2, n/4 … 1 units, n a power of 2,
-- and the most units that may be taken. It tries these steps in order and takes each that fits.
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

function funnel.book(q, now)
  local st = q.st
  q.us, q.rem = add(q.us, q.rem, q.own, q.own_rest, q.D)
  st.us, st.rem = add(now, 0, q.us, q.rem, q.D)
  st.born = now
  if ARGV[1] == 'r' then -- the caller waits until the level is within the capacity
    local full = ARGV[#ARGV - 1] + 0
    local us, rem = subtract(q.us, q.rem, full, ARGV[#ARGV] + 0, q.D)
    wait(st, now, now + us + (rem > 0 and 1 or 0), full)
  end
  write_funnel(q.key, st, q.rate, now, q.horizon)
end

function funnel.tell(q)
  return int(q.us), int(q.rem)
end
