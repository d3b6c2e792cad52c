-- How a funnel decides. This file follows lib.lua in the scripts that ask one.
--
-- A question q has its key, the rate, the capacity (fus, frem) and the horizon in
-- ms.
-- Amounts are costs in us and rem.

local funnel = {}

-- look reads what the question is about.
function funnel.look(q, now)
  q.D = tonumber((rated(q.rate)))
  q.st = read_funnel(q.key, q.rate, now)
  q.us, q.rem = level(q.st.us, q.st.rem, now)
  return q
end

-- fits tells whether there is room for a cost.
function funnel.fits(q, us, rem)
  us, rem = add(q.us, q.rem, us, rem, q.D)
  return not less(q.fus, q.frem, us, rem)
end

-- pour adds a cost, and save keeps what has been added.
function funnel.pour(q, us, rem)
  q.us, q.rem = add(q.us, q.rem, us, rem, q.D)
end

function funnel.save(q, now)
  q.st.us, q.st.rem = add(now, 0, q.us, q.rem, q.D)
  q.st.born = now
  write_funnel(q.key, q.st, q.rate, now, q.horizon)
end

-- tell appends the level to an answer.
function funnel.tell(q, answer)
  answer[#answer + 1] = int(q.us)
  answer[#answer + 1] = int(q.rem)
end
