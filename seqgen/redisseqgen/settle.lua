-- Changes what is not a reservation. lib.lua stands in front of it and says what is
-- stored where.
--
-- KEYS         h, v, x of the partition
--
-- ARGV[1]      how long voids are kept, in microseconds
-- then two values for each change: its field, and kind (1 return, 2 void, 3 abandon,
--              4 bump, 5 raise), epoch (19 digits), token (20), lo, hi (19 each),
--              reason, nonce (16 bytes)
--
-- Returns a string for each change:
--   o and the new epoch of a bump or zeros, and epoch, lo and hi of what became void
--   or zeros
--   s stale    r and epoch and last: rolled back    e exhausted
--   x          the row is none of this version
--
-- Atomic because Redis runs a script alone. A repeated change finds what it did.

local retention = tonumber(ARGV[1])
local DONE = 'o' .. ZERO .. ZERO .. ZERO .. ZERO

local function gone(r) return 'r' .. r.epoch .. r.last end

-- Records a certain void, joined with those that it touches.
local function certain(field, epoch, lo, hi, reason)
  local first, last = lo, hi
  for _, v in ipairs(voids(field, epoch, plus(lo, -1), lesser(plus(hi, 1), LAST), 1000000)) do
    if v.kind == 'c' then
      dropVoid(v.member)
      first, last = lesser(first, v.lo), greater(last, v.hi)
    end
  end
  addVoid(field, epoch, first, last, 'c', reason, NOBODY, format('%016d', now), expiry(retention))
  return 'o' .. ZERO .. epoch .. lo .. hi
end

local function giveBack(field, r, epoch, token, lo, reason)
  if r.epoch == epoch and r.token == token then
    if not r.owned then return DONE end
    if lo > plus(r.last, 1) then return gone(r) end
    if lo <= r.used then return 's' end
    r.last = plus(lo, -1)
    r.used, r.owned = r.last, false
    for at = 1, #r.log, ENTRY do
      if sub(r.log, at + 16, at + 34) == epoch and sub(r.log, at + 54, at + 72) >= lo then spend(r, at) end
    end
    return DONE, true
  end
  if r.epoch < epoch or r.epoch == epoch and r.token < token then return gone(r) end
  for _, v in ipairs(voids(field, epoch, lo, LAST, 1000000)) do
    if v.kind == 'o' and v.token == token then
      local from = greater(lo, v.lo)
      dropVoid(v.member)
      if from > v.lo then addVoid(field, epoch, v.lo, plus(from, -1), 'o', v.reason, token, v.at, sub(v.member, -16)) end
      return certain(field, epoch, from, v.hi, reason)
    end
  end
  return DONE
end

local function makeVoid(field, r, epoch, lo, hi, reason)
  if r.epoch .. r.last < epoch .. hi then return gone(r) end
  return certain(field, epoch, lo, hi, reason)
end

local function settle(field, s)
  local kind, epoch, token, lo, hi = sub(s, 1, 1), sub(s, 2, 20), sub(s, 21, 40), sub(s, 41, 59), sub(s, 60, 78)
  local reason, nonce = sub(s, 79, 79), sub(s, 80, 95)
  local r = load(field)
  if r == false then return 'x' end
  if not r then
    if kind == '1' or kind == '2' then return 'r' .. ZERO .. ZERO end
    r = fresh()
    if kind == '4' then r.epoch = ZERO end
  end
  local answer, changed
  if kind == '1' then
    answer, changed = giveBack(field, r, epoch, token, lo, reason)
  elseif kind == '2' then
    answer = makeVoid(field, r, epoch, lo, hi, reason)
  elseif kind == '3' then
    local at, e = logged(r, nonce)
    answer = DONE
    if not at then
      note(r, nonce, ZERO, ZERO, ZERO, NOBODY)
      changed = true
    elseif e.lo ~= ZERO then
      if e.token ~= NOBODY then
        answer = giveBack(field, r, e.epoch, e.token, e.lo, reason)
      else
        answer = makeVoid(field, r, e.epoch, e.lo, e.hi, reason)
      end
      if sub(answer, 1, 1) == 'o' then
        spend(r, at)
        changed = true
      end
    end
  elseif kind == '4' then
    local _, e = logged(r, nonce)
    if e then return 'o' .. e.epoch .. ZERO .. ZERO .. ZERO end
    local next = greater(r.epoch, epoch)
    if next >= LAST then return 'e' end
    next = plus(next, 1)
    local from, to = orphan(field, r, retention, '6')
    answer = 'o' .. next .. (from == ZERO and ZERO or r.epoch) .. from .. to
    r.epoch, r.last, r.mode, r.token, r.owned, r.used = next, ZERO, '0', nextToken(r), false, ZERO
    note(r, nonce, next, ZERO, ZERO, NOBODY)
    changed = true
  else
    answer = DONE
    if epoch .. hi >= r.epoch .. r.last then
      r.epoch, r.last, r.token, r.owned, r.used = epoch, hi, token, token ~= NOBODY, ZERO
    end
    changed = true
  end
  if changed then save(field, r) end
  return answer
end

local reply = {}
for i = 2, #ARGV, 2 do reply[#reply + 1] = settle(ARGV[i], ARGV[i + 1]) end
return reply
