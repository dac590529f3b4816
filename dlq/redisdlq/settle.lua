-- Records what became of claimed lanes and their letters. lib.lua stands in front of it
-- and says what is stored where.
--
-- KEYS      h, z of the partition
--
-- ARGV[1]   how long what has ended is kept, in microseconds
-- then seven values for each settlement:
--   kind: 1 resolve, 2 retry, 3 review, 4 release, 5 extend; stream; lane; token; number of
--   the letter; failure, or nothing; delay or lease in microseconds
--
-- Returns a string with a letter for each: . applied, now or before; s stale, nothing was
-- changed; x what is stored is not of this version, nothing was changed.
--
-- Atomic because Redis runs a script alone. A repeated settlement finds its token. Where
-- the memory is full, its first write is one that frees some, so that work can be
-- finished.

local retention = whole(ARGV[1])
local RESOLVE, RETRY, TOREVIEW, RELEASE, EXTEND = '1', '2', '3', '4', '5'

local function settle(kind, stream, lane, token, x, failure, span)
  if token == '0' then return 's' end
  local r = readLetter(stream, x)
  if r and laneOf(r.id, r.key, r.aside) ~= lane then r = nil end
  if r and r.settledBy == token and r.settledAs == kind then return '.' end
  local k = readLane(stream, lane)
  if k.token ~= token then return 's' end
  if k.lease == 0 then return kind == RELEASE and '.' or 's' end -- it was released
  if kind == EXTEND then
    k.lease = now + whole(span)
    schedule(k)
    return '.'
  end
  local mine = r and r.begun == token
  if kind ~= RELEASE and not mine then return 's' end

  local log = (kind == RETRY or kind == TOREVIEW) and readLog(r)
  if mine then readGroup(stream, r.print) end -- these fail before anything is written
  if log then readGroup(stream, select(2, match(failure, FAILURE))) end
  call('ZREM', Z, 'n' .. k.nonce .. stream .. '\0' .. lane)
  k.nonce, k.lease, k.since, k.expires = NOBODY, 0, now, now + retention
  if mine then
    r.begun, r.settledBy, r.settledAs = '0', token, kind
    if kind == RELEASE then
      r.tries = r.tries - 1
    else
      outcome(r, kind == RESOLVE and 'passed' or 'failed')
    end
    if log then fail(r, log, failure) end
    if kind == RETRY then r.next = now + whole(span) end
    if kind == TOREVIEW then
      setState(r, REVIEW)
      r.next = 0
    end
    if kind == RESOLVE then finish(r, k, RESOLVED, retention) end
    writeLetter(r)
  end
  if kind ~= RESOLVE then schedule(k, mine and r) end -- what is begun is the first
  return '.'
end

local letters = {}
for i = 2, #ARGV, 7 do
  letters[#letters + 1] = item(settle, ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5], ARGV[i + 6])
end
return table.concat(letters)
