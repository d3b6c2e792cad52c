-- What is kept of a log, after lib.lua: a sorted set with one member per unit, scored by when it
-- was admitted.

-- members returns how many units a log has. Its first and last member tell
-- whether it is one: their scores, which servers spell in several ways, and the
-- times in their names are the same.
local function members(key)
  local all = try('ZCARD', key)
  for _, rank in ipairs({ '0', '-1' }) do
    local m = call('ZRANGE', key, rank, rank, 'WITHSCORES')
    local at = tonumber(m[2] or 0)
    local time = at and at >= 0 and at <= TOP and at % 1 == 0
    if not time or (m[1] and not string.find(m[1], '^' .. int(at) .. '%-%d+$')) then
      bad('not the members of a log')
    end
  end
  return all
end

-- enter adds n members of this time. Those of one microsecond are numbered, on
-- from those that are there, of which there are nr. They leave together, or from
-- the highest number down (all numbers are of one length, and Redis orders
-- members as text), so that no number that is taken is given again.
local function enter(key, now, nr, n)
  local stamp = int(now)
  local done = 0
  while done < n do
    local chunk = {}
    for i = 1, math.min(n - done, 1000) do
      chunk[2 * i - 1] = stamp
      chunk[2 * i] = stamp .. string.format('-%07.0f', nr + done)
      done = done + 1
    end
    call('ZADD', key, unpack(chunk))
  end
end
