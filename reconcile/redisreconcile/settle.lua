-- Records what became of operations. lib.lua and ledger.lua stand in front of it and say
-- what is stored where.
--
-- KEYS      h, z of the partition
--
-- ARGV[1]   kind
-- ARGV[2]   quiet period, [3] retention, in microseconds
-- then ten values for each settlement:
--   verb: 1 accept, 2 confirm, 3 fail, 4 doubt, 5 defer, 6 ask, 7 send, 8 extend, 9 receipt,
--   10 resolve, 11 forget; key; token; nonce, in 32 hexadecimal digits; state, again and
--   looked, one digit each; delay and lease in microseconds; row of the result, or nothing;
--   by whom; note
--
-- Returns a string with a letter for each: . applied, now or before; s stale; n no such
-- operation; c changed; 3, 4 it has ended so; x what is stored is not of this version, nothing
-- was changed.
--
-- Atomic because Redis runs a script alone. A repeated settlement finds its token or its
-- nonce. What is there can be settled also where the memory is full.

local kind, quiet, retention = ARGV[1], whole(ARGV[2]), whole(ARGV[3])
local CONTRADICTING = 'contradicting receipts'

local function finish(r, state, again)
  r.state, r.again, r.review, r.due, r.lease, r.expires = state, again, '', 0, 0, now + retention
end

-- Ends the grant of whoever is at work on it.
local function take(r) r.outsider, r.lease = r.last == '0', 0 end

-- From outside. What is answered without a change of the state is saved all the same,
-- because it is answered again.
local function receipt(r, s)
  if r.state == s.state then
    if r.state == FAILED then
      r.again, r.due = false, 0
      take(r)
      if r.expires == 0 then r.expires = now + retention end -- it was never sent
    end
    return '.'
  end
  if hasEnded(r) then
    r.again, r.due, r.review = false, 0, CONTRADICTING
    take(r)
    append(r, RECEIPT, s.by, s.note)
    return r.state
  end
  take(r)
  finish(r, s.state, false)
  append(r, RECEIPT, s.by, s.note)
  return '.', s.result
end

local function resolve(r, s)
  if r.token ~= s.token then return 'c' end
  if hasEnded(r) and r.review == '' then return r.state end
  finish(r, s.state, s.again)
  if s.again then r.due = now end
  move(r, s.nonce, ASIS)
  r.last = RESOLVE
  append(r, RESOLVE, s.by, s.note)
  return '.', s.result
end

local function outside(r, s)
  if r.outside == s.nonce then return r.answer end
  local answer, result = (s.verb == RECEIPT and receipt or resolve)(r, s)
  r.outside, r.answer = s.nonce, answer
  save(r, result)
  return answer
end

-- By whom it was granted to.
local function owner(r, s)
  if s.verb == RESEND then
    if r.state == STARTED then return '.' end
    if now >= r.lease or r.grant ~= LOOK then return 's' end
    send(r, s.lease, quiet, r.state == FAILED)
    append(r, RESEND, s.by, s.note)
    save(r)
    return '.'
  end
  if s.verb == EXTEND then
    r.lease = now + s.lease
    if r.state == STARTED then r.due = r.lease + quiet end
    save(r)
    return '.'
  end
  local before, result = r.state, nil
  r.last, r.lease = s.verb, 0
  if s.verb == ACCEPT or s.verb == DOUBT then
    r.state, r.due, r.expires = s.verb == ACCEPT and ACCEPTED or UNKNOWN, now + s.delay, 0
    if s.verb == ACCEPT then result = s.result end
  elseif s.verb == CONFIRM then
    finish(r, CONFIRMED, false)
    result = s.result
  elseif s.verb == FAIL then
    finish(r, FAILED, s.again)
    if s.again and s.delay > 0 then r.due = now + s.delay end
    result = s.result
  elseif s.verb == DEFER then
    r.due = now + s.delay
    if s.looked then r.looks = r.looks + 1 end
  else -- ASK
    r.review, r.due = s.note, 0
  end
  if r.state == STARTED then r.state = UNKNOWN end
  if r.state ~= before or s.verb == ASK then append(r, s.verb, s.by, s.note) end
  save(r, result)
  return '.'
end

local function settle(s)
  local r = read(kind, s.key)
  if s.verb == FORGET then
    if r then remove(r) end
    return '.'
  end
  if r and hasExpired(r) then r = nil end
  if s.verb == RECEIPT or s.verb == RESOLVE then
    if not r then return 'n' end
    return outside(r, s)
  end
  if not r or r.token ~= s.token then return 's' end
  if r.outsider then
    if s.verb == EXTEND or s.verb == CONFIRM and r.state == CONFIRMED or s.verb == FAIL and r.state == FAILED then return '.' end
    return r.state
  end
  if r.last ~= '0' then return r.last == s.verb and '.' or 's' end
  return owner(r, s)
end

local letters = {}
for i = 4, #ARGV, 10 do
  local flags = ARGV[i + 4]
  letters[#letters + 1] = item(settle, {verb = ARGV[i], key = ARGV[i + 1], token = ARGV[i + 2], nonce = ARGV[i + 3], state = sub(flags, 1, 1),
    again = sub(flags, 2, 2) == '1', looked = sub(flags, 3, 3) == '1', delay = whole(ARGV[i + 5]), lease = whole(ARGV[i + 6]),
    result = ARGV[i + 7] ~= '' and ARGV[i + 7] or nil, by = ARGV[i + 8], note = ARGV[i + 9]})
end
return table.concat(letters)
