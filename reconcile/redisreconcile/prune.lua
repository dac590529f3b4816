-- Forgets expired findings and old counts. lib.lua and checks.lua stand in front of it and
-- say what is stored where.
--
-- KEYS      ch, cz of the partition
--
-- ARGV[1]   how many of them to look at
--
-- Returns how many were looked at, and how many were removed.
--
-- Atomic because Redis runs a script alone. What was removed is not there for a repeated
-- call. Its first write frees memory.

local looked, removed = 0, 0

local function each(letter, before, f)
  for _, member in ipairs(call('ZRANGEBYLEX', Z, '[' .. letter, '(' .. letter .. time(before), 'LIMIT', 0, whole(ARGV[1]) - looked)) do
    local nul = string.find(member, '\0', 1, true)
    looked = looked + 1
    item(f, sub(member, 18, nul - 1), sub(member, nul + 1), member)
    call('ZREM', Z, member) -- also when the row, which stays, is not of this version: it must not stop the others
  end
end

each('e', now + 1, function(kind, name, member)
  local nul = string.find(name, '\0', 1, true)
  local f = read(kind, sub(name, 1, nul - 1), sub(name, nul + 1))
  if not f or not hasExpired(f) or expiryMember(f) ~= member then return end
  remove(f)
  removed = removed + 1
end)

each('x', now, function(kind, name, member)
  local cell = readCell(kind, name)
  if not cell or field('x' .. time(cell.expires), kind, name) ~= member then return end
  call('HDEL', H, field('t', kind, name))
  call('ZREM', Z, field('c', kind, name))
  removed = removed + 1
end)
return {looked, removed}
