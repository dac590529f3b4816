-- Ends or extends claims.
--
-- KEYS[1..n]   one row per settlement; an ID may stand here more than once
-- KEYS[n+1]    index of the IDs of this scope that are claimed under Hold, or held
--
-- ARGV         three values per settlement:
--   kind and token   c complete, r release, h hold, e extend, each with the 16
--                    digits of the token; f forget; t retain
--   ttl              how long the row then lives, in milliseconds; retain: at least
--   value            complete: the result; extend: the lease in microseconds
--
-- Returns      how many were applied, now or before, then two values for each
--              settlement that was not: its place, and why.
--   s            stale: another token, ended another way, or no row
--   x            the row is not one of claim.lua's
--
-- Rows are described in claim.lua. Atomic because Redis runs a script alone: the
-- token that was compared is the token of the row that is replaced. A repeated
-- settlement finds the state it has made.

local call, pcall, sub, format = redis.call, redis.pcall, string.sub, string.format

local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local n = #KEYS - 1
local index = KEYS[n + 1]

local row = '^1([cChdr])(%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d)(................)(%-?%d+) (%-?%d+) (%d+)(.*)$'

-- what a settlement makes of a row's state; false: applied before
local becomes = {
  c = {c = 'd', C = 'd', h = 'd', d = false},
  r = {c = 'r', C = 'r', h = 'r', r = false},
  h = {c = 'h', C = 'h', h = false},
  e = {c = 'c', C = 'C'},
}

-- returns nil, or why the settlement was not applied
local function settle(key, old, kind, token, ttl, value)
  if not old then return 's' end
  local was, number, nonce, since, lasts, attempt, rest = string.match(old, row)
  if not was or tonumber(number) >= 2 ^ 53 then return 'x' end -- not exact any more
  if number ~= token then return 's' end
  local state = becomes[kind][was]
  if state == nil then return 's' end
  if state == false then return nil end

  if kind == 'e' then
    lasts = format('%.0f', now - number - since + value) -- it counts from since
  else
    lasts = '0'
    if kind ~= 'h' then since = format('%.0f', now - number) end
    if kind == 'c' and value ~= '' then rest = rest .. '=' .. value end
  end
  local new = '1' .. state .. number .. nonce .. since .. ' ' .. lasts .. ' ' .. attempt .. rest
  if state == 'h' or state == 'C' then
    call('SET', key, new)
    if was == 'c' then call('ZADD', index, 0, key) end
  else
    call('SET', key, new, 'PX', ttl)
    if was ~= 'c' then call('ZREM', index, key) end
  end
end

-- makes a row that is done live longer; returns nil, or why it could not be told
local function retain(key, old, ttl)
  if not old then return nil end
  local was = string.match(old, row)
  if not was then return 'x' end
  if was == 'd' then call('PEXPIRE', key, ttl, 'GT') end
end

local applied, reply = 0, {0}
for i = 1, n do
  local key, op, ttl, value = KEYS[i], ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
  local kind, why = sub(op, 1, 1), nil
  if kind == 'f' then
    call('DEL', key)
    call('ZREM', index, key)
  else
    local old = pcall('GET', key)
    if type(old) ~= 'table' and kind == 't' then
      why = retain(key, old, ttl)
    elseif type(old) ~= 'table' then
      why = settle(key, old, kind, sub(op, 2), ttl, value)
    elseif sub(old.err, 1, 9) == 'WRONGTYPE' then
      why = 'x'
    else
      return old
    end
  end
  if why then
    reply[#reply + 1] = i
    reply[#reply + 1] = why
  else
    applied = applied + 1
  end
end
reply[1] = applied
return reply
