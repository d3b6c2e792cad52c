-- Applies the batch of one node to one shard, exactly once.
--
-- KEYS[1]   the node's ledger: "<seq> <nonce> <total> <failed> <forgiven>".
--           The last two are "-", or what the batch seq has failed with (index,…) and
--           what it was forgiven (index:units,…)
-- KEYS[2..] one counter per operation
-- ARGV      seq, prev, accept (0 or 1), TTL of the ledger in ms, nonce (16 random hex
--           digits, the same each time that a batch is sent), the sum of all units,
--           two texts of lines, which cost less than as many arguments, and for how many ms
--           a node may wait before it reports.
-- Rules, of which the first of its kind is called f1 or w1, whatever its line:
--   f <rate> <horizon ms> <us> <rem>   the last two are what one unit costs
--   w <width us> <kept> <horizon ms>
-- Operations, with the name of their rule:
--   f1 <units> <cost us> <cost rem> <ahead us> <ahead rem>   ahead us below 0 if these
--           units by themselves have leaked for so long
--   w1 <units> <id>:<units>:<last> …   a list of buckets, which may be empty
--           Behind each there may be groups, in any order:
--   ;r      raise the counter first
--      f: <generation> <born> <level us> <level rem>, us below 0 if it has been empty
--         for so long
--      w: <generation> <born> and buckets
--   ;c      units of an outage, of which those are forgiven that would raise the counter
--           above a ceiling
--      f: <ceiling us> <rem> <how many they are>
--   ;b      hand back units that earlier batches booked
--      f: <cost us> <cost rem> <the generation in which they were handed back>
--         <level us> <level rem>, above which others have booked behind them
--      w: <that generation> and their buckets
-- Reply     a text of lines. The first is <verdict> <Redis' time in us> <total>. Then
--           there is one for each operation, of a counter
--   <us> <rem>                       that has no generation and was booked on now: a
--    <id>:<units>:<last> …           funnel is empty at us + rem/D, maybe in the past, or
--                                    a window has these buckets
--   f <generation> <born> <us> <rem> that is anything else. If there was a group c, how
--   w <generation> <born> <buckets>  many units are forgiven follows
--   g …, v …                         the same of a funnel that has leaked at another
--                                    rate before, a window that had buckets of another width
--   e <reason>                       that has failed: nothing was booked on it
--   b <reason>                       that was booked on when the batch was applied, but
--                                    cannot be read now
--
-- Verdicts: a applied, d duplicate (this very batch had been applied, nothing
-- is now), o other (the batch of this number was another one, so that somebody
-- else goes by the node's name: nothing is applied, no states), s stale (an older
-- batch: nothing is applied, no states), l lost (the ledger does not know the batch before
-- this one, Redis has lost data: nothing is applied, no states).

-- Most calls carry few operations, so what counts is what a call costs whatever it carries.
-- Lua makes each function of a script anew in each call, and allocates once more for each local
-- that functions share. So there are only three functions here, which share nothing. What is not
-- usual is in long.lua.

-- read_rules returns what the operations are booked under, by the names of the rules: what
-- the short ways need of it. A state of no generation begins with head if it is written now.
local function read_rules(text, now, stamp)
  local find, rules, pos, funnels, windows = string.find, {}, 1, 0, 0
  while pos <= #text do
    local _, stop, rate, D = find(text, '^f ((%d+)%S*)[ %d]*\n', pos)
    if stop then
      funnels = funnels + 1
      rules[funnels == 1 and 'f1' or 'f' .. funnels] = { rate = rate, D = D + 0, head = 'f 0 ' .. stamp .. ' ' .. rate .. ' ' }
    else
      local width, kept
      _, stop, width, kept = find(text, '^w (%d+) (%d+) %d+\n', pos)
      local us = width + 0
      local current = (now - now % us) / us
      windows = windows + 1
      rules[windows == 1 and 'w1' or 'w' .. windows] = {
        us = us, width = width, kept = kept + 0, current = current, head = 'w 0 ' .. stamp .. ' ' .. width,
      }
    end
    pos = stop + 1
  end
  return rules
end

-- The short ways. Most operations only book units, and most counters have no
-- generation and the rule's own rate or width, or are not there. A short way gets the value
-- that the key has, or nil. It returns the counter's line of the reply, where the line of the
-- operation ends, the new value, and until when that matters. Nil means: go the long way.

-- pour books units on a funnel. What it adds up are cost and ahead, see add and later in
-- lib_funnel.lua. A funnel that has run empty before oldest is not kept.
local function pour(ops, pos, rules, v, now, oldest, whole)
  local _, stop, name, cost_us, cost_rem, ahead_us, ahead_rem =
    string.find(ops, '^(f%d+) [1-9]%d* (%d+) (%d+) (%-?%d+) (%d+)\n', pos)
  local rule = rules[name or '']
  if not rule then
    return nil
  end
  local us, rem, D = 0, 0, rule.D
  if v then
    local rate -- behind a birth of today, of 16 digits
    rate, us, rem = string.match(v, '^f 0 [1-8]%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d (%S+) ([1-9]%d*) (%d+)$')
    if rate ~= rule.rate or rem ~= '0' and rem < '1' then -- which begins with 0
      return nil
    end
    us, rem = us + 0, rem + 0
    if us > 9007199254740991 or rem >= D then
      return nil
    end
  end
  us, rem = us + cost_us, rem + cost_rem
  if rem >= D then
    us, rem = us + 1, rem - D
  end
  local least, rest = now + ahead_us, ahead_rem + 0
  if us < least or (us == least and rem < rest) then
    us, rem = least, rest
  end
  if us > 9007199254740991 or not v and (us < oldest or us == oldest and rem == 0) then
    return nil
  end
  local text = string.format(whole, us) .. (rem == 0 and ' 0' or ' ' .. string.format(whole, rem))
  return text, stop, rule.head .. text, rem > 0 and us + 1 or us
end

-- pour_window books units of one bucket on a window, to be added to the newest one or
-- to come after it.
local function pour_window(ops, pos, rules, v, whole)
  local find = string.find
  local _, stop, name, list, id, units, came = find(ops, '^(w%d+) [1-9]%d*( ([1-9]%d*):([1-9]%d*):(%d+))\n', pos)
  local rule = rules[name or '']
  if not rule or #id > 15 or #units > 15 then
    return nil
  end
  local new, width, oldest = id + 0, rule.us, rule.current - rule.kept
  if new > rule.current or new < oldest or v and #v > 4096 then
    return nil
  end
  if v then
    local _, tail, text = find(v, '^w 0 [1-8]%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d (%d+)')
    if text ~= rule.width then
      return nil
    end
    -- Nothing is wrong with the buckets, whose ids ascend. Those that count begin at start.
    -- The newest is at last.
    local start, last, top, had, when, length = tail + 1, tail + 1, 0, 0, 0, #v
    while tail < length do
      local at, i, u, w = tail + 1, nil, nil, nil
      _, tail, i, u, w = find(v, '^ ([1-9]%d*):([1-9]%d*):(%d+)', at)
      if not tail or #i > 15 or #u > 15 or i + 0 <= top then
        return nil
      end
      if #w > 15 or w ~= '0' and w < '1' or w + 0 > width then
        return nil
      end
      last, top, had, when = at, i + 0, u, w + 0
      if top < oldest then
        start = tail + 1
      end
    end
    if top > new then
      return nil
    end
    if top == new then
      came = came + 0
      list = string.sub(v, start, last) .. id .. ':' .. string.format(whole .. ':' .. whole, had + units, when > came and when or came)
    else
      list = string.sub(v, start) .. list
    end
  end
  return list, stop, rule.head .. list, (new + rule.kept + 1) * width
end

local KEYS, ARGV, call = KEYS, ARGV, call -- global names are slower to find
-- Others may report units of the same time, as late as they may wait: together they may fill what
-- each by itself does not. So a counter outlives its meaning for so much longer, and a funnel
-- that has run empty before its units were reported is kept.
SLACK = SLACK + (ARGV[9] or 0)
local MEMORY = SLACK * 1000
local now, ops = clock(), ARGV[8]
local long -- what make_long has made, if it was needed

-- To print a number as an integer takes half of the time that %.0f takes, but its range
-- is that of the machine.
local whole = '%d'
local stamp = format(whole, now)
if stamp + 0 ~= now then
  whole = '%.0f'
  stamp = format(whole, now)
end

-- What the ledger says.
local values = redis.pcall('MGET', unpack(KEYS)) -- if it fails, each key is asked for by itself
local known = values[1] or nil
local last, nonce, total, failed, forgiven = match(known or '', '^([1-9]%d*) (%x+) ([1-9]%d*) ([-%d,]+) ([-%d:,]+)$')
if last and #last < 16 and #total < 16 then
  last, total = last + 0, total + 0
else
  long = make_long(now, SLACK, MEMORY)
  last, nonce, total, failed, forgiven = long.ledger(known)
end
local seq, prev, verdict = ARGV[1] + 0, ARGV[2] + 0, 'l'
if last == seq then
  verdict = nonce == ARGV[5] and 'd' or 'o'
elseif last > seq then
  verdict = 's'
elseif last == prev or ARGV[3] == '1' then
  verdict = 'a'
end
if verdict ~= 'a' and verdict ~= 'd' then
  return verdict .. ' ' .. stamp .. ' ' .. format(whole, total)
end

-- The ledger is written before anything else: if Redis is out of memory or
-- read-only this fails, and with it the script, while nothing is applied. Once
-- one write has passed, Redis lets the others of the script pass too.
local apply, sum = verdict == 'a', total
if apply then
  sum = total + ARGV[6]
  if sum > MAX then
    sum = MAX
  end
end
local sum_text = format(whole, sum)
if apply then
  call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[5] .. ' ' .. sum_text .. ' - -', 'PX', ARGV[4])
end

local out, pos, rules = { '', '' }, 1, read_rules(ARGV[7], now, stamp)
local funnels, windows, spelled, spelling = rules.f1, rules.w1, nil, nil
local seen = #KEYS > 2 and {} -- keys of which the value that was read is used
for i = 2, #KEYS do
  local key, v = KEYS[i], values[i] or nil
  if seen and seen[key] then
    v = nil
  elseif seen then
    seen[key] = true
  end
  local line, stop, value, untilus
  if apply and funnels then
    line, stop, value, untilus = pour(ops, pos, rules, v, now, now - MEMORY, whole)
  end
  if apply and windows and not line then
    line, stop, value, untilus = pour_window(ops, pos, rules, v, whole)
  end
  if line then
    local ttl = untilus > now and untilus - now + 999 or 0
    ttl = (ttl - ttl % 1000) / 1000 + SLACK
    if ttl ~= spelled then -- many keys of a batch last as long as the one before
      spelled, spelling = ttl, format(whole, ttl < FOREVER and ttl or FOREVER)
    end
    -- NX: something other than a text may be at a key at which MGET finds nothing.
    local done
    if v then
      done = redis.pcall('SET', key, value, 'PX', spelling)
    else
      done = redis.pcall('SET', key, value, 'PX', spelling, 'NX')
    end
    if not done then
      line = nil
    elseif done.err then
      long = long or make_long(now, SLACK, MEMORY)
      line = long.blame(done, i - 2)
    end
  end
  if not line then
    long = long or make_long(now, SLACK, MEMORY)
    line, stop = long.book(key, pos, i - 2, v, apply, failed, forgiven)
  end
  out[i], pos = line, stop + 1
end

if apply and long then
  sum_text = long.correct(total, sum, sum_text)
end
out[1] = verdict .. ' ' .. stamp .. ' ' .. sum_text
return table.concat(out, '\n', 1, #KEYS)
