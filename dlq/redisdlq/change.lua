-- Applies what persons decided about letters. lib.lua stands in front of it and says what
-- is stored where.
--
-- KEYS         h, z of the partition
--
-- ARGV[1..2]   how long what has ended is kept, and how long entries are, in microseconds
-- then twelve values for each change:
--   kind: e edit, a approve, r reject, d discard, s skip, f forget, n note; nonce, in 32
--   hexadecimal digits; stream; ID; number of the letter (16 digits, all 0: none); digest
--   that the person saw, or *; digest and body after an edit; job, or *; verb; actor;
--   reason
--
-- Returns a string with a letter for each: . applied, now or before; n not found; s the
-- state does not allow it; c it was changed meanwhile; x what is stored is not of this
-- version. With all but the first nothing was changed.
--
-- Atomic because Redis runs a script alone. A repeated change finds its nonce.

local retention, audit = whole(ARGV[1]), whole(ARGV[2])
local NOLETTER = string.rep('0', 16)

local function allows(kind, r)
  if kind == 'f' or kind == 'n' then return true end
  return unresolved(r.state) and not (kind == 's' and r.aside)
end

local function note(stream, nonce, letter, before, after, job, verb, id, actor, reason)
  local x, expires = nextNumber(stream), now + audit
  local row = format('1 %d %d ', now, expires) .. letter .. ' ' .. nonce .. ' ' .. before .. ' ' .. after .. ' ' .. job ..
    format(' %d %d %d ', #verb, #id, #actor) .. verb .. id .. actor .. reason
  call('HSET', H, 'x' .. stream, x, field('e', stream, x), row, field('N', stream, nonce), x)
  call('ZADD', Z, 0, field('m', stream, x))
  if id ~= '' then call('ZADD', Z, 0, field('I', stream, id) .. '\0' .. x) end
  if job ~= NONE then call('ZADD', Z, 0, field('O', stream, job) .. '\0' .. x) end
  forgetAt('e', stream .. '\0' .. x, 0, expires)
end

local function edit(r, digest, body)
  if r.edited == '0' then
    call('HSET', H, field('o', r.stream, r.x), call('HGET', H, field('b', r.stream, r.x)) or '1')
    r.edited = '1'
  end
  call('HSET', H, field('b', r.stream, r.x), '1' .. body)
  r.digest = digest
end

local function approve(r, job)
  if job ~= NONE then
    if job ~= r.job then
      if r.job ~= NONE then call('ZREM', Z, field('J', r.stream, r.job) .. '\0' .. r.x) end
      call('ZADD', Z, 0, field('J', r.stream, job) .. '\0' .. r.x)
    end
    raise(field('J', r.stream, job) .. '\0' .. 'released', 1)
    r.job, r.counted = job, '1'
  end
  setState(r, WAITING)
  r.tries, r.next = 0, now
end

-- Puts a letter into a lane of its own.
local function skip(r, k, own)
  setState(r, REVIEW)
  r.next = 0
  if k.name == own.name then own = k end
  leave(r, k, retention)
  r.aside = true
  writeLetter(r)
  enter(r, own)
end

local function forget(r, k)
  if unresolved(r.state) then finish(r, k, DISCARDED, retention) end
  remove(r)
end

local function change(kind, nonce, stream, id, x, before, after, body, job, verb, actor, reason)
  if call('HEXISTS', H, field('N', stream, nonce)) == 1 then return '.' end
  if kind == 'n' and x == NOLETTER then
    note(stream, nonce, x, NONE, NONE, job, verb, id, actor, reason)
    return '.'
  end
  local r = readLetter(stream, x)
  if not r or r.id ~= id then return 'n' end
  if not allows(kind, r) then return 's' end
  if before ~= NONE and before ~= r.digest then return 'c' end
  if kind == 'a' and job ~= NONE and call('HEXISTS', H, field('j', stream, job)) == 0 then return 'n' end

  local was = r.digest
  if kind ~= 'n' then
    local k = readLane(stream, laneOf(r.id, r.key, r.aside)) -- these fail before anything is written
    local own = readLane(stream, laneOf(r.id, r.key, true))
    readGroup(stream, r.print)
    outcome(r, 'moved')
    r.begun = '0'
    if kind == 'e' then edit(r, after, body) end
    if kind == 'a' then approve(r, job) end
    if kind == 'r' then finish(r, k, REJECTED, retention) end
    if kind == 'd' then finish(r, k, DISCARDED, retention) end
    if kind == 's' then
      skip(r, k, own)
    elseif kind == 'f' then
      forget(r, k)
    else
      writeLetter(r)
    end
    if kind == 'a' then schedule(k) end
  end
  if kind ~= 'a' and kind ~= 'n' then job = NONE end
  note(stream, nonce, x, was, kind == 'f' and NONE or r.digest, job, verb, id, actor, reason)
  return '.'
end

local letters = {}
for i = 3, #ARGV, 12 do
  letters[#letters + 1] = item(change, ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5], ARGV[i + 6], ARGV[i + 7],
    ARGV[i + 8], ARGV[i + 9], ARGV[i + 10], ARGV[i + 11])
end
return table.concat(letters)
