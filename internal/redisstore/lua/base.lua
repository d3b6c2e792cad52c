-- Constants, in front of every script. Redis runs all of a script each time that it is
-- called: a function that is made here would cost even those that do not use it.
--
-- Numbers. Lua counts in doubles, exact up to 2^53, and prints large ones with
-- an exponent: whatever leaves a script as text goes through int(). Times are
-- microseconds since the epoch; 2^53 of them last until the year 2255.

local MAX = 9007199254740992 -- 2^53: the largest number of units
local TOP = 9007199254740991 -- 2^53 - 1: the latest time
local SLACK = 1000 -- ms that a key outlives its meaning
local FOREVER = 6307200000000 -- ms, 200 years: the longest TTL

local format, match, find, byte, sub = string.format, string.match, string.find, string.byte, string.sub
local call = redis.call
