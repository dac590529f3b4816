-- Answers one question per ID: may the asker run the effect?
--
-- KEYS[1..n]   one row per ask; an ID may stand here more than once
-- KEYS[n+1]    with state C only: the index of the IDs of this scope that are
--              claimed under Hold, or held
--
-- ARGV[1]      state of a row that is acquired: c, C or d (see below)
-- ARGV[2]      how long the row lives unless it changes, in milliseconds;
--              of no meaning with C, which never expires
-- ARGV[3..n+2] what a new row has behind its token, one per ask: nonce, 0, the
--              lease, 1, and the ask's fingerprint if it has one
--
-- Returns the time in microseconds, and that alone if all IDs were new. It is
-- then their token. Otherwise an array: the time, how many IDs were new, and two
-- values for each ask whose ID was not: its place, and its answer.
--   a <token> <attempt> <left>     acquired, again or after another owner
--   i <attempt> <left> <age>       in flight
--   d <attempt> <age> <result>     done
--   c <attempt>                    conflict
--   u <token> <attempt> <age>      unknown
--   x                              the row is not one of these: nothing changed
-- left and age are microseconds.
--
-- A row is a string:
--   1            the layout version
--   state        c claimed under Rerun, C claimed under Hold, h held, d done, r released
--   token        16 digits: the time of the grant, unless it was taken
--   nonce        16 bytes, of the ask that acquired
--   since        microseconds from token to the grant, completion or release
--   lease        microseconds from since to the end of the lease (c and C)
--   attempt
--   f and the fingerprint (32 bytes), if there is one; then
--   = and the result, if there is one
-- with a space behind since and lease.
--
-- Atomic because Redis runs a script alone: nobody sees an ID between the look
-- at its row and the write. A repeated ask finds its own nonce.

local pcall, sub = redis.pcall, string.sub
local state, ttl, n = ARGV[1], ARGV[2], #ARGV - 2
local time = redis.call('TIME')
local now = time[1] .. sub('00000' .. time[2], -6)

-- First every ID is claimed as if it were new, which most are. SET with NX
-- changes nothing where there is a row.
local head = '1' .. state .. now
local new, others = 0, nil
for i = 1, n do
  local done
  if state == 'C' then
    done = pcall('SET', KEYS[i], head .. ARGV[i + 2], 'NX')
    if done and done.ok then redis.call('ZADD', KEYS[n + 1], 0, KEYS[i]) end
  else
    done = pcall('SET', KEYS[i], head .. ARGV[i + 2], 'NX', 'PX', ttl)
  end
  if not done then
    others = others or {}
    others[#others + 1] = i
  elseif done.err then
    return done -- the server refused to write: no ask has an answer
  else
    new = new + 1
  end
end
if not others then return now end

local format, match = string.format, string.match
local behind = '^(................)(%-?%d+) (%-?%d+) (%d+)(.*)$'
local row = '^1([cChdr])(%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d)' .. sub(behind, 2)

-- The answer to an ask whose ID has a row.
local function answer(key, ask)
  local old = pcall('GET', key)
  if type(old) ~= 'string' then return 'x' end -- its neighbours are not to blame
  local was, token, nonce, since, lasts, attempt, rest = match(old, row)
  if not was or tonumber(token) >= 2 ^ 53 then return 'x' end -- not exact any more
  local asker, _, lease, _, print = match(ask, behind)
  local number, same = tonumber(token), nonce == asker
  local age = now - number - since
  local left = lasts - age

  local stored = ''
  if sub(rest, 1, 1) == 'f' then stored = sub(rest, 1, 33) end
  if stored ~= print and stored ~= '' and print ~= '' then return 'c ' .. attempt end

  if was == 'd' then
    if same and state == 'd' then return format('a %s %s 0', token, attempt) end
    return format('d %s %.0f ', attempt, age) .. sub(rest, #stored + 2)
  elseif was == 'h' or was == 'C' and left <= 0 then
    return format('u %s %s %.0f', token, attempt, age)
  elseif was ~= 'r' and left > 0 then
    if same then return format('a %s %s %.0f', token, attempt, left) end
    return format('i %s %.0f %.0f', attempt, left, age)
  elseif was == 'r' and same then
    return format('i %s 0 0', attempt) -- a late copy of an ask that is spent
  end

  number = math.max(number + 1, tonumber(now))
  token = format('%016.0f', number)
  attempt = format('%.0f', attempt + 1)
  if stored == '' then stored = print end
  local next = '1' .. state .. token .. asker ..
    format('%.0f ', now - number) .. lease .. ' ' .. attempt .. stored
  if state == 'C' then
    redis.call('SET', key, next)
    redis.call('ZADD', KEYS[n + 1], 0, key)
  else
    redis.call('SET', key, next, 'PX', ttl)
  end
  return format('a %s %s %s', token, attempt, lease)
end

local reply = {now, new}
for _, i in ipairs(others) do
  reply[#reply + 1] = i
  reply[#reply + 1] = answer(KEYS[i], ARGV[i + 2])
end
return reply
