-- Applies the batch of one node to one shard, exactly once.
--
-- KEYS[1]   the node's ledger: "<seq> <nonce> <total> <failed> <forgiven>".
--           The last two are "-", or which operations of the batch seq have failed
--           (index,…) and which units were forgiven (index:units,…)
-- KEYS[2..] one counter per operation
-- ARGV      seq, prev, accept (0 or 1), TTL of the ledger in ms, nonce (16 random hex
--           digits, the same each time that a batch is sent), the sum of all units, the
--           rules and the operations (each a text of lines, which costs less than as many
--           arguments), and how many ms a node may wait before it reports.
-- Rules are named by their kind and their number within it: the first are f1 and w1.
--   f <rate> <horizon ms> <us> <rem>   the last two are what one unit costs
--   w <width us> <kept> <horizon ms>
--   c <horizon ms> <calendar>          a window, by a calendar as in lib_window.lua
-- Operations begin with the name of their rule:
--   f1 <units> <cost us> <cost rem> <ahead us> <ahead rem>   ahead: how long until a bucket
--           with these units alone is empty; us is negative if it is empty already
--   w1 <units> <id>:<units>:<last> …   a list of buckets, which may be empty
--           After each there may be groups, in any order:
--   ;r      restore first: merge this state of the sender into the counter
--      f: <generation> <born> <level us> <level rem>, us negative if it has been empty
--         for so long
--      w: <generation> <born> and buckets
--   ;c      units of an outage: those that would lift the level above a ceiling are
--           forgiven, that is not booked
--      f: <ceiling us> <rem> <units of the outage>
--   ;a      some of the units are booked ahead, or units that were reported before
--      f: <us> <us>, for how long their callers wait, and the capacity
--   ;b      refund units that earlier batches booked
--      f: <cost us> <cost rem> <generation of the refund>
--         <level us> <level rem>, above which others have booked behind them if any callers wait
--      w: <generation of the refund> and their buckets
-- Reply     a text of lines. The first is <verdict> <Redis' time in us>. Then
--           there is one line for each operation, with the state of its counter:
--   <us> <rem>                       no generation, booked on in this call: a leaky
--    <id>:<units>:<last> …           bucket is empty at us + rem/D, maybe in the past;
--                                    a window has these buckets
--   f <generation> <born> <us> <rem> any other state. If there was a group c, the number
--   w <generation> <born> <buckets>  of units forgiven follows; and ";" and until when callers
--                                    wait that have booked a leaky bucket ahead, if there are any
--   g …, v …                         the same as f, w for a leaky bucket that had another
--                                    rate before, a window that had another bucket width
--   e <reason>                       it failed: nothing was booked on it
--   b <reason>                       it was booked on when the batch was applied, but
--                                    cannot be read now
--
-- Verdicts: a applied, d duplicate (this batch was applied before, and is not again),
-- o other (another batch of this number was applied: another node uses the same name),
-- s stale (a later batch was applied), l lost (the ledger does not have the batch before
-- this one: Redis has lost data). With o, s and l nothing is applied, and there are no
-- states.

-- Most calls carry few operations, so the fixed cost of a call matters most. In each call
-- Lua creates every function of a script anew, and allocates once more for each local
-- that functions share. So there are only three functions here, which share nothing. Rare
-- cases are in long.lua.

-- read_rules returns the rules by name. A state without a generation that is written now
-- begins with head.
local function read_rules(text, now, stamp)
  local find, rules, pos, funnels, windows = string.find, {}, 1, 0, 0
  while pos <= #text do
    local _, stop, rate, D, horizon, us, rem = find(text, '^f ((%d+)%S*) (%d+) (%d+) (%d+)\n', pos)
    if stop then
      funnels = funnels + 1
      rules[funnels == 1 and 'f1' or 'f' .. funnels] = {
        rate = rate, D = D + 0, horizon = horizon + 0, us = us + 0, rem = rem + 0, head = 'f 0 ' .. stamp .. ' ' .. rate .. ' ',
      }
    else
      local digits, kept
      _, stop, digits, kept, horizon = find(text, '^w (%d+) (%d+) (%d+)\n', pos)
      local rule
      if stop then
        local width = digits + 0
        local current = (now - now % width) / width
        rule = { width = width, digits = digits, kept = kept + 0, horizon = horizon + 0, current = current, head = 'w 0 ' .. stamp .. ' ' .. digits }
      else -- current: each operation takes the slow path
        rule = { kept = 0, current = -1, width = 1 }
        _, stop, rule.horizon, rule.calendar = find(text, '^c (%d+) ([%d %-]+)\n', pos)
        rule.horizon = rule.horizon + 0
      end
      windows = windows + 1
      rules[windows == 1 and 'w1' or 'w' .. windows] = rule
    end
    pos = stop + 1
  end
  return rules
end

-- The fast paths. Most operations only book units, and most counters do not exist, or have
-- no generation and the rule's own rate or width. A fast path gets the key's value, or nil.
-- It returns the counter's line of the reply, where the line of the operation ends, the new
-- value, and until when that is needed. It returns nil if the slow path must be taken.

-- pour books units on a leaky bucket: it adds the cost, and then empties at now + ahead at
-- the earliest. If it was empty before oldest and has no key yet, the slow path decides.
local function pour(ops, pos, rules, v, now, oldest, whole)
  local _, stop, name, cost_us, cost_rem, ahead_us, ahead_rem =
    string.find(ops, '^(f%d+) [1-9]%d* (%d+) (%d+) (%-?%d+) (%d+)\n', pos)
  local rule = rules[name or '']
  if not rule then
    return nil
  end
  local us, rem, D = 0, 0, rule.D
  if v then
    local rate -- after born, a time of 16 digits as all are today
    rate, us, rem = string.match(v, '^f 0 [1-8]%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d (%S+) ([1-9]%d*) (%d+)$')
    if rate ~= rule.rate or rem ~= '0' and rem < '1' then -- rem has a leading 0
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

-- pour_window books units of one bucket on a window: of its newest bucket, or of a
-- later one.
local function pour_window(ops, pos, rules, v, whole)
  local find = string.find
  local _, stop, name, list, id, units, came = find(ops, '^(w%d+) [1-9]%d*( ([1-9]%d*):([1-9]%d*):(%d+))\n', pos)
  local rule = rules[name or '']
  if not rule or #id > 15 or #units > 15 then
    return nil
  end
  local new, width, oldest = id + 0, rule.width, rule.current - rule.kept
  if new > rule.current or new < oldest or v and #v > 4096 then
    return nil
  end
  if v then
    local _, tail, text = find(v, '^w 0 [1-8]%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d (%d+)')
    if text ~= rule.digits then
      return nil
    end
    -- All buckets must be valid, with ascending ids. Those that still count begin at start,
    -- the newest one begins at last.
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

local KEYS, ARGV, call = KEYS, ARGV, call -- global names are slower
-- A key is kept ARGV[9] ms longer: other nodes may still hold unreported units of the same time,
-- which fill the counter only together with these. For the same reason a leaky bucket is kept that
-- was empty before its units were reported.
SLACK = SLACK + (ARGV[9] or 0)
local MEMORY = SLACK * 1000
local now, ops = clock(), ARGV[8]
local long -- the result of make_long, if it was needed

-- %d takes half of the time that %.0f takes, but its range depends on the machine.
local whole = '%d'
local stamp = format(whole, now)
if stamp + 0 ~= now then
  whole = '%.0f'
  stamp = format(whole, now)
end

-- Read the ledger and all counters.
local values = redis.pcall('MGET', unpack(KEYS)) -- if it fails, each key is read by itself
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
  return verdict .. ' ' .. stamp
end

-- The ledger is written before anything else: if Redis is out of memory or
-- read-only, this fails, and with it the script, before anything is applied. After
-- one successful write Redis allows the other writes of the script.
local apply = verdict == 'a'
if apply then
  local sum = total + ARGV[6]
  call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[5] .. ' ' .. format(whole, sum < MAX and sum or MAX) .. ' - -', 'PX', ARGV[4])
end

local out, pos, rules = { '', '' }, 1, read_rules(ARGV[7], now, stamp)
local funnels, windows, spelled, spelling = rules.f1, rules.w1, nil, nil
local seen = #KEYS > 2 and {} -- keys of which the value that was read has been used
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
    if ttl ~= spelled then -- many keys of a batch have the same TTL
      spelled, spelling = ttl, format(whole, ttl < FOREVER and ttl or FOREVER)
    end
    -- NX: MGET also finds nothing at a key of another type, which must not be overwritten.
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
    line, stop = long.book(key, pos, i - 2, v, rules, apply, failed, forgiven)
  end
  out[i], pos = line, stop + 1
end

if apply and long then
  long.correct(total)
end
out[1] = verdict .. ' ' .. stamp
return table.concat(out, '\n', 1, #KEYS)
