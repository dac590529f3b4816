-- Looks whether rows of IDs lead to an event, and clears away void nonces. lib.lua
-- stands in front of it and says what is stored where.
--
-- KEYS      h, z of the partition
--
-- ARGV      three values for each item: v or u, ID, and the nonce. u has the time of
--           the void nonce in front of it.
--   v   whether the event is here. If not, the nonce is void from now on.
--   u   the void nonce is forgotten
--
-- Returns a string with a letter for each: y or n, and . for u.
--
-- Atomic because Redis runs a script alone. A repeated call has the same answer.

local letters = {}
for i = 1, #ARGV, 3 do
  local what, id, nonce = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if what == 'u' then
    call('ZREM', Z, 'f' .. nonce .. id)
    call('HDEL', H, 'f' .. sub(nonce, 17) .. id)
    letters[#letters + 1] = '.'
  elseif call('HEXISTS', H, 'e' .. id) == 1 then
    letters[#letters + 1] = 'y'
  else
    if call('HEXISTS', H, 'f' .. nonce .. id) == 0 then fence(nonce, id) end
    letters[#letters + 1] = 'n'
  end
end
return table.concat(letters)
