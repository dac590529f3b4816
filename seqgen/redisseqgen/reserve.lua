-- Reserves numbers. lib.lua stands in front of it and says what is stored where.
--
-- KEYS         h, v, x of the partition
--
-- ARGV[1]      how long voids are kept, in microseconds
-- then two values for each ask: its field, and mode, how many (6 digits), nonce (16
--              bytes), epoch and number that were seen (19 each), open (1 or 0), token
--              (20), used (19)
--
-- Returns a string for each ask:
--   g and epoch, lo, hi, token, and lo and hi of what was orphaned or zeros
--   s stale    m and the mode    r and epoch and last: rolled back    e exhausted
--   x          the row is none of this version
--
-- Atomic because Redis runs a script alone. A repeated ask finds its nonce.

local retention = tonumber(ARGV[1])

local function reserve(field, s)
  local mode, n, nonce, seen = sub(s, 1, 1), whole(sub(s, 2, 7)), sub(s, 8, 23), sub(s, 24, 61)
  local open, token, used = sub(s, 62, 62) == '1', sub(s, 63, 82), sub(s, 83, 101)
  local r = load(field)
  if r == false then return 'x' end
  if not r then
    if seen ~= ZERO .. ZERO then return 'r' .. ZERO .. ZERO end
    r = fresh()
  end
  local at, e = logged(r, nonce)
  if at and e.lo == ZERO then return 's' end
  if at then return 'g' .. e.epoch .. e.lo .. e.hi .. e.token .. ZERO .. ZERO end
  if r.epoch .. r.last < seen then return 'r' .. r.epoch .. r.last end
  if r.mode ~= '0' and r.mode ~= mode then return 'm' .. r.mode end
  if mode == '2' and not open and (not r.owned or r.token ~= token) then return 's' end
  if r.last == LAST then return 'e' end

  local lost, upto, owner = ZERO, ZERO, NOBODY
  if mode == '2' then
    if open then
      lost, upto = orphan(field, r, retention, '5')
      r.token, r.owned, r.used = nextToken(r), true, r.last
    else
      r.used = greater(r.used, lesser(used, r.last))
    end
    owner = r.token
  end
  local lo = plus(r.last, 1)
  r.last, r.mode = lesser(plus(r.last, n), LAST), mode
  note(r, nonce, r.epoch, lo, r.last, owner)
  save(field, r)
  return 'g' .. r.epoch .. lo .. r.last .. owner .. lost .. upto
end

local reply = {}
for i = 2, #ARGV, 2 do reply[#reply + 1] = reserve(ARGV[i], ARGV[i + 1]) end
return reply
