-- Asks a funnel for units.
--
-- KEYS[1] the counter
-- ARGV    D, cost us, cost rem, capacity us, capacity rem, horizon ms, all
--         spans in us + rem/D. A cost of 0 only looks.
-- Reply   "1" or "0" (allowed), level us, level rem; or "e", reason

local D = tonumber(ARGV[1])
local now = clock()
local st, why = guard(read_funnel, KEYS[1], D)
if not st then
  return { 'e', why }
end

local us, rem = level(st.us, st.rem, now)
local cus, crem = tonumber(ARGV[2]), tonumber(ARGV[3])
local tus, trem = add(us, rem, cus, crem, D)
if less(tonumber(ARGV[4]), tonumber(ARGV[5]), tus, trem) then
  return { '0', int(us), int(rem) }
end
if cus > 0 or crem > 0 then
  st.us, st.rem = add(now, 0, tus, trem, D)
  write_funnel(KEYS[1], st, D, now, tonumber(ARGV[6]))
end
return { '1', int(tus), int(trem) }
