-- Changes what is done about workers. lib.lua stands in front of it and says what is
-- stored where.
--
-- KEYS         h, n of the partition
--
-- ARGV[1]      the scope
-- then two values for each action: the name, and kind, nonce (32 characters), token, seq
--              (19 digits), stalled, quiet, claim, wait, most, each followed by a space
--
-- Returns a string for each action: o done; g and the claim, a space and the attempt; u1
-- given up by this action, u0 before; c changed; b busy; n no record; x the row is none
-- of this version.
--
-- Atomic because Redis runs a script alone. A repeated take finds its nonce.

local ASK = {'kind', 'nonce', 'token', 'seq', 'stalled', 'quiet', 'claim', 'wait', 'most'}
local NEVER = '0000000000000000000'
local scope = ARGV[1]

local function take(field, r, a)
  if r.take == a.nonce then return string.gsub(r.answer, '_', ' ') end
  if r.left == '1' or whole(r.token) ~= a.token or (a.seq ~= NEVER and r.seq ~= a.seq) or
    r.stalled < tonumber(a.stalled) or r.quiet < tonumber(a.quiet) then return 'c' end
  if r.givenup == '1' then
    r.acted = now
    save(field, r)
    return 'u0'
  end
  if now < r.acted then -- the clock has gone back
    r.nextat, r.acted = now + math.max(r.nextat - r.acted, 0), now
    save(field, r)
    return 'b'
  end
  if now < r.nextat then return 'b' end
  local answer
  if r.attempts >= tonumber(a.most) then
    r.givenup, r.acted, answer = '1', now, 'u1'
  else
    r.attempts, r.claim = r.attempts + 1, next_token(r.claim)
    r.nextat, r.acted, r.settled = now + tonumber(a.wait), now, '0'
    answer = 'g' .. whole(r.claim) .. ' ' .. whole(r.attempts)
  end
  r.take, r.answer = a.nonce, string.gsub(answer, ' ', '_')
  save(field, r)
  return answer
end

local function act(name, s)
  local field = scope .. '\0' .. name
  local a = split(s, ASK)
  local r = load(field)
  if a.kind == '5' then
    if r == false and a.token == '0' then r = nil end -- whoever wrote it, it goes
    if r == false then return 'x' end
    if r and ((a.token ~= '0' and whole(r.token) ~= a.token) or (a.seq ~= NEVER and r.seq ~= a.seq)) then return 'c' end
    call('HDEL', H, field)
    call('ZREM', N, field)
    return 'o'
  end
  if r == nil then return 'n' end
  if r == false then return 'x' end
  if a.kind == '1' then return (take(field, r, a)) end
  if a.kind == '2' then
    if whole(r.claim) ~= a.claim then return 'c' end
    if r.settled == '1' then return 'o' end
    r.settled, r.nextat, r.acted = '1', now + tonumber(a.wait), now
  elseif a.kind == '3' then
    if whole(r.claim) ~= a.claim or now < r.acted + tonumber(a.wait) then return 'c' end
    r.attempts, r.givenup = 0, '0'
  else
    r.attempts, r.givenup = 0, '0'
    if r.settled == '1' then r.nextat = 0 end
  end
  save(field, r)
  return 'o'
end

local reply = {}
for i = 2, #ARGV, 2 do reply[#reply + 1] = act(ARGV[i], ARGV[i + 1]) end
return reply
