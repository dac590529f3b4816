-- The timeline: what the scripts for observations share.
--
-- All of a kind lies in one partition.
--   H   e <kind> NUL <event>         an observation
--       s <kind> NUL <subject>       how many there are of a subject, and were dropped. A subject
--                                    is m and a message, or o and the caller's own ID
--   Z   i <kind> NUL <subject> NUL <time><event>           observations of a subject, in order
--       j <kind> NUL <own> NUL <message> NUL <time><event> those of a message that name an Own
--       e <time><kind> NUL <subject>                       what may be forgotten, and when

local function field(letter, kind, name) return letter .. kind .. '\0' .. name end

local OBSERVATION = '^1 (%d+) (%S+) (%d) (%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (.*)$'

-- An observation, as far as the scripts need it.
local function parse(row)
  local o, message, own, _ = {}
  o.received, _, _, o.digest, message, own, _, _, _, o.rest = match(row, OBSERVATION)
  if not o.received then error(BAD) end
  o.message = sub(o.rest, 1, whole(message))
  o.own = sub(o.rest, whole(message) + 1, whole(message) + whole(own))
  return o
end

local function subjectOf(message, own)
  if message ~= '' then return 'm' .. message end
  return 'o' .. own
end

-- The members by which an observation is found.
local function finders(kind, subject, own, event, received)
  local at = time(received) .. event
  local list = {field('i', kind, subject) .. '\0' .. at}
  if own ~= '' and sub(subject, 1, 1) == 'm' then list[2] = field('j', kind, own) .. '\0' .. sub(subject, 2) .. '\0' .. at end
  return list
end

local function readSubject(kind, name)
  local row = call('HGET', H, field('s', kind, name))
  if not row then return {kind = kind, name = name, n = 0, dropped = 0, expires = 0, last = ''} end
  local n, dropped, expires, last = match(row, '^1 (%d+) (%d+) (%d+) (.*)$')
  if not n then error(BAD) end
  return {kind = kind, name = name, n = whole(n), dropped = whole(dropped), expires = whole(expires), last = last}
end

local function expiryMember(s) return 'e' .. time(s.expires) .. s.kind .. '\0' .. s.name end

local function subjectRow(s) return format('1 %d %d %d ', s.n, s.dropped, s.expires) .. s.last end

-- Removes at most n observations of a subject, the first ones first, and the subject with
-- the last. Returns how many were looked at, how many were removed, and whether these are all.
local function erase(s, n)
  local list = field('i', s.kind, s.name) .. '\0'
  local page, removed = call('ZRANGEBYLEX', Z, '[' .. list, '(' .. list .. ':', 'LIMIT', 0, n), 0
  for _, member in ipairs(page) do
    local at = sub(member, #list + 1)
    local event = sub(at, 17)
    local row = call('HGET', H, field('e', s.kind, event))
    local o = row and parse(row)
    if o and subjectOf(o.message, o.own) == s.name and time(whole(o.received)) == sub(at, 1, 16) then
      call('HDEL', H, field('e', s.kind, event))
      drop(finders(s.kind, s.name, o.own, event, whole(o.received)))
      removed = removed + 1
    else -- a part of a step has left it behind
      call('ZREM', Z, member)
    end
  end
  if #page < n then
    call('HDEL', H, field('s', s.kind, s.name))
    return #page, removed, true
  end
  s.n = math.max(s.n - removed, 0)
  call('HSET', H, field('s', s.kind, s.name), subjectRow(s))
  return #page, removed, false
end
