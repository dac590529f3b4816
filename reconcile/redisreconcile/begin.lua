-- Begins operations. lib.lua and ledger.lua stand in front of it and say what is stored
-- where.
--
-- KEYS      h, z of the partition
--
-- ARGV[1]   kind
-- ARGV[2]   lease, [3] quiet period, in microseconds
-- then six values for each operation:
--   key; nonce, in 32 hexadecimal digits; 1 if it is only to be recorded; account;
--   fingerprint (43, or *); payload
--
-- Returns the time in microseconds; and for each operation a letter and its rows s, p, r
-- and l: 1 as is  2 conflict  3 send  4 look; N send, R as is, and the payload is the caller's
-- own; and without rows f full  x what is stored is not of this version, nothing was changed.
--
-- Atomic because Redis runs a script alone. A repeated ask finds its nonce.

local kind, lease, quiet = ARGV[1], whole(ARGV[2]), whole(ARGV[3])

local function new(key, nonce, later, account, print, payload)
  local floor = call('HGET', H, 'x')
  if floor and not whole(floor) then error(BAD) end
  local r = {kind = kind, key = key, account = account, print = print, token = floor or '0', attempts = 0, looks = 0, review = '',
    created = now, answer = '.', outside = NOBODY, entries = 0, dropped = 0}
  if later then
    r.state, r.again, r.first, r.sent, r.fenced, r.due, r.lease, r.expires = FAILED, true, 0, 0, 0, now, 0, 0
    move(r, nonce, ASIS)
    r.last = FAIL
    append(r, FAIL, '', '')
  else
    send(r, lease, quiet, true)
    move(r, nonce, SEND)
    append(r, RESEND, '', '')
  end
  if save(r, nil, payload ~= '' and '1' .. payload or nil) then return later and 'R' or 'N', r end
  return 'f'
end

local function begin(key, nonce, later, account, print, payload)
  local r = read(kind, key)
  if r and hasExpired(r) then
    remove(r)
    r = nil
  end
  if not r then return new(key, nonce, later, account, print, payload) end
  if r.print ~= print and r.print ~= NONE and print ~= NONE then return CONFLICT, r end
  if r.nonce == nonce then return granted(r) and r.grant or ASIS, r end
  if later or now < r.lease or r.review ~= '' then return ASIS, r end
  if r.state == FAILED and r.again then
    send(r, lease, quiet, true)
    move(r, nonce, SEND)
    append(r, RESEND, '', '')
    save(r)
    return SEND, r
  end
  if not hasEnded(r) and r.due > 0 and r.due <= now then
    look(r, nonce, lease)
    save(r)
    return LOOK, r
  end
  return ASIS, r
end

local reply = {format('%d', now)}
for i = 4, #ARGV, 6 do
  local at = #reply + 1
  reply[at] = item(function()
    local grant, r = begin(ARGV[i], ARGV[i + 1], ARGV[i + 2] == '1', ARGV[i + 3], ARGV[i + 4], ARGV[i + 5])
    if r then
      reply[at] = grant
      tell(r, reply, grant == 'N' or grant == 'R')
    end
    return grant
  end)
  if #reply == at then
    for n = 1, 4 do reply[at + n] = '' end
  end
end
return reply
