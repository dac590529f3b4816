-- Takes findings that are due, lists findings, and counts them. lib.lua and checks.lua stand
-- in front of it and say what is stored where.
--
-- KEYS      ch, cz of the partition
--
-- ARGV[1]   what to do, [2] kind; then
--   claim: check; how many; for how long they are not due then, in microseconds
--   list: where to begin, as ZRANGEBYLEX has it; the beginning of the members; how many; how
--     many to look at; how many bytes are enough; subject, state and account behind a 1:
--     nothing for any
--   open: behind which check; how many
--
-- Returns the time in microseconds; then
--   claim: for each finding its check, its subject and its rows f and l
--   list: the member behind which there may be more, or nothing; then as claim
--   open: for each check its name, its row, and since when the oldest is open, or 0
--
-- Atomic because Redis runs a script alone. A repeated claim takes others.

local kind, reply = ARGV[2], {format('%d', now)}

local function claim(check, most, hold)
  local list, taken = field('d', kind, check) .. '\0', 0
  for _, member in ipairs(call('ZRANGEBYLEX', Z, '[' .. list, '(' .. list .. time(now + 1), 'LIMIT', 0, most + 64)) do
    if taken == most then break end
    item(function()
      local f = read(kind, check, sub(member, #list + 17))
      if not f or not isUnresolved(f) or dueMember(f) ~= member then -- left behind by a part of a step
        call('ZREM', Z, member)
        return
      end
      f.due = now + hold
      save(f)
      tell(f, reply)
      taken = taken + 1
    end)
  end
end

local function list(from, prefix, most, look, bytes, subject, state, account)
  local found, size, last = 0, 0, ''
  reply[2] = ''
  for i, member in ipairs(call('ZRANGEBYLEX', Z, from, '(' .. prefix .. '\255', 'LIMIT', 0, look + 1)) do
    if i > look or found == most or size >= bytes then
      reply[2] = last
      break
    end
    last = member
    local name = sub(member, #kind + 3)
    local nul = string.find(name, '\0', 1, true)
    local row = call('HGET', H, field('f', kind, name))
    local f = row and parse(row, kind, sub(name, 1, nul - 1), sub(name, nul + 1))
    if f and not hasExpired(f) and (subject == '' or subject == f.subject) and (state == '' or state == f.state) and
      (account == '' or account == '1' .. f.account) and (sub(member, 1, 1) == 'f' or isUnresolved(f)) then
      found, size = found + 1, size + tell(f, reply)
    end
  end
end

local function oldest(check)
  local list = field('o', kind, check) .. '\0'
  while true do
    local member = call('ZRANGEBYLEX', Z, '[' .. list, '(' .. list .. ':', 'LIMIT', 0, 1)[1]
    if not member then return '0' end
    local subject = sub(member, #list + 17)
    local row = call('HGET', H, field('f', kind, check .. '\0' .. subject))
    local f = row and parse(row, kind, check, subject)
    if f and (f.state == OPEN or f.state == ACKNOWLEDGED) and openMember(f) == member then return format('%d', f.opened) end
    call('ZREM', Z, member)
  end
end

local function open(after, most)
  local list = field('n', kind, '')
  for _, member in ipairs(call('ZRANGEBYLEX', Z, '(' .. list .. after, '(n' .. kind .. '\1', 'LIMIT', 0, most)) do
    local check = sub(member, #list + 1)
    reply[#reply + 1], reply[#reply + 2] = check, call('HGET', H, field('u', kind, check)) or '1 0 0 0'
    reply[#reply + 1] = oldest(check)
  end
end

local ok, err = pcall(function()
  if ARGV[1] == 'claim' then
    claim(ARGV[3], whole(ARGV[4]), whole(ARGV[5]))
  elseif ARGV[1] == 'list' then
    list(ARGV[3], ARGV[4], whole(ARGV[5]), whole(ARGV[6]), whole(ARGV[7]), ARGV[8], ARGV[9], ARGV[10])
  else
    open(ARGV[3], whole(ARGV[4]))
  end
end)
if not ok and err == BAD then return redis.error_reply('PAWLROW not of this version') end
if not ok then error(err, 0) end
return reply
