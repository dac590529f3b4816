-- Reads operations, and finds and counts them. lib.lua and ledger.lua stand in front of it
-- and say what is stored where.
--
-- KEYS      h, z of the partition
--
-- ARGV[1]   what to do, [2] kind; then
--   read: how many bytes of rows are enough, and keys
--   find: behind which key; how many; how many to look at; account, state, open and review:
--     nothing for any; and the beginnings of the members to look at, without the key
--   count: behind which account; 1 if all; how many
--
-- Returns the time in microseconds; then
--   read: for each key its rows s, p, r and l, which are empty where it is not known;
--     of the first keys only, if they are enough
--   find: 1 if that is all, the key up to which was looked; and keys, in order
--   count: for each account its name, its row, and when its oldest open operation was
--     created, or 0
--
-- A repeated call reads again. What a part of a step has left behind (see lib.lua) is
-- removed where it is found.

local kind, reply = ARGV[2], {format('%d', now)}
local function put(value) reply[#reply + 1] = value end

local function rows()
  local size = 0
  for i = 4, #ARGV do
    local row = call('HGET', H, field('s', kind, ARGV[i]))
    local r = row and parse(row, kind, ARGV[i])
    if r and not hasExpired(r) then
      size = size + tell(r, reply)
    else
      for _ = 1, 4 do put('') end
    end
    if size >= whole(ARGV[3]) then break end
  end
end

local function find(after, most, limit, account, state, open, review, ...)
  local keys = {}
  for _, prefix in ipairs({...}) do
    local first = after == '' and '[' .. prefix or '(' .. prefix .. after
    for _, member in ipairs(call('ZRANGEBYLEX', Z, first, '(' .. prefix .. '\255', 'LIMIT', 0, limit + 1)) do
      keys[#keys + 1] = sub(member, #prefix + 1)
    end
  end
  table.sort(keys)
  local looked, found = 0, {}
  put('1')
  put(keys[#keys] or '')
  for i, key in ipairs(keys) do
    if looked == limit or #found == most then
      reply[2], reply[3] = '0', keys[i - 1]
      break
    end
    if key ~= keys[i - 1] then
      looked = looked + 1
      local row = call('HGET', H, field('s', kind, key))
      local r = row and parse(row, kind, key)
      if r and not hasExpired(r) and (account == '' or account == '1' .. r.account) and (state == '' or state == r.state) and
        (open == '' or isOpen(r)) and (review == '' or r.review ~= '') then
        found[#found + 1] = key
      end
    end
  end
  for _, key in ipairs(found) do put(key) end
end

local function oldest(account)
  local list = field('w', kind, account) .. '\0'
  while true do
    local member = call('ZRANGEBYLEX', Z, '[' .. list, '(' .. list .. ':', 'LIMIT', 0, 1)[1]
    if not member then return '0' end
    local key = sub(member, #list + 17)
    local row = call('HGET', H, field('s', kind, key))
    local r = row and parse(row, kind, key)
    if r and isOpen(r) and openMember(r) == member then return format('%d', r.created) end
    call('ZREM', Z, member)
  end
end

local function count(after, first, most)
  local list = field('y', kind, '')
  local from = first == '1' and '[' .. list or '(' .. list .. after
  for _, member in ipairs(call('ZRANGEBYLEX', Z, from, '(y' .. kind .. '\1', 'LIMIT', 0, whole(most))) do
    local account = sub(member, #list + 1)
    put(account)
    put(call('HGET', H, field('c', kind, account)) or '')
    put(oldest(account))
  end
end

local ok, err = pcall(function()
  if ARGV[1] == 'read' then
    rows()
  elseif ARGV[1] == 'find' then
    find(ARGV[3], whole(ARGV[4]), whole(ARGV[5]), unpack(ARGV, 6))
  else
    count(ARGV[3], ARGV[4], ARGV[5])
  end
end)
if not ok and err == BAD then return redis.error_reply('PAWLROW not of this version') end
if not ok then error(err, 0) end
return reply
