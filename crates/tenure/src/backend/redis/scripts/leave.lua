-- Leaves the queue; if the name was granted meanwhile, gives it back. What was used of its range is not known: all of it stays reserved.
--
-- ARGV  2: token
-- Returns  done

give_back(ARGV[2], math.huge)
return { now, 'done', unpublished }
