-- Forgets expired operations. lib.lua and ledger.lua stand in front of it and say what is
-- stored where.
--
-- KEYS      h, z of the partition
--
-- ARGV[1]   how many to look at
--
-- Returns how many were looked at, and how many were removed.
--
-- Atomic because Redis runs a script alone. What was removed is not there for a repeated
-- call. Its first write frees memory.

local looked, removed = 0, 0
for _, member in ipairs(call('ZRANGEBYLEX', Z, '[e', '(e' .. time(now + 1), 'LIMIT', 0, whole(ARGV[1]))) do
  local nul = string.find(member, '\0', 1, true)
  looked = looked + 1
  item(function()
    local r = read(sub(member, 18, nul - 1), sub(member, nul + 1))
    if not r or not hasExpired(r) or expiryMember(r) ~= member then return end
    remove(r)
    removed = removed + 1
  end)
  call('ZREM', Z, member) -- also when the row, which stays, is not of this version: it must not stop the others
end
return {looked, removed}
