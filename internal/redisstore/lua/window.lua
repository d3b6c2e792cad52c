-- How a window decides, sliding, or fixed with kept = 0. Scripts have this file after
-- lib_window.lua.
--
-- Amounts are units. The oldest bucket expires gradually: Rule.Gone of package arith says how,
-- and why.

-- at_most reports whether a * b <= c * d, exactly: the products may be above 2^53, so they are not
-- computed. With a = m*d + x and c = n*b + y they are m*b*d + x*b and n*b*d + y*d, where x*b and
-- y*d are below b*d. So m and n decide, and x*b and y*d only if these are equal. Every Lua computes
-- the remainders of whole numbers up to 2^53 exactly.
local function at_most(a, b, c, d)
  while a > 0 and b > 0 and c > 0 and d > 0 do
    local x, y = a % d, c % b
    local m, n = (a - x) / d, (c - y) / b
    if m ~= n then
      return m < n
    end
    a, b, c, d = b, x, d, y
  end
  return a == 0 or b == 0
end

local window = {}
kinds.w = window

function window.read(key, at)
  local arg = ARGV
  local width = tonumber(arg[at + 1])
  return {
    key = key, kind = window, limit = arg[at] + 0, width = width, calendar = not width and arg[at + 1], kept = arg[at + 2] + 0,
    horizon = arg[at + 3] + 0, ask = arg[at + 4] + 0, rest = 0, own = 0, own_rest = 0, st = false, elapsed = 0, admitted = false, dry = false,
  }, at + 5
end

function window.look(q, now)
  q.st = read_window(q.key, q, now)
  q.elapsed = q.st.at % q.width
end

-- room returns the limit less n and less the buckets that count in full, and the
-- units of the oldest bucket, which counts in part.
function window.room(q, n)
  local room, oldest = q.limit - n, 0
  for _, age in ipairs(q.st.ages) do
    local units = q.st.n[age]
    if age > 0 and age == q.kept then
      oldest = units
    else
      -- Stop below 0: further down the difference is not exact.
      room = room - units
    end
    if room < 0 then
      break
    end
  end
  return room, oldest
end

-- holds reports whether the part of the oldest bucket that still counts fits into the room.
function window.holds(q, room, oldest)
  if room < 0 or oldest <= room then
    return room >= 0
  end
  local last = q.st.l[q.kept]
  local left = last - q.elapsed
  if left <= 0 then
    return true
  end
  -- The division does not round to a whole number: no quotient of two that are at most 2^53 is
  -- so near to one without being it.
  return oldest - room <= math.ceil(q.limit / q.kept) and at_most(left, q.limit, room, q.kept * q.width)
    and not at_most(room, last, left, oldest - 1)
end

function window.fits(q)
  return window.holds(q, window.room(q, q.ask))
end

function window.left(q)
  local room, oldest = window.room(q, 0)
  local most = math.min(q.ask, room)
  while q.own < most do -- more than most do not fit
    local n = q.own + math.ceil((most - q.own) / 2)
    if window.holds(q, room - n, oldest) then
      q.own = n
    else
      most = n - 1
    end
  end
  return q.own
end

function window.book(q, now)
  local st = q.st
  if not st.l[0] then
    st.ages[#st.ages + 1] = 0
  end
  st.n[0] = (st.n[0] or 0) + q.own
  st.l[0] = math.max(st.l[0] or 0, q.elapsed)
  q.st.born = now
  write_window(q.key, q.st, q)
end

function window.tell(q)
  return int((q.st.at - q.elapsed) / q.width), int(q.elapsed), (buckets(q.st, q))
end
