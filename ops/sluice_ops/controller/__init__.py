"""The controller decides what runs where: it reads the channel, decides, and writes the decision.

One controller leads, the others stand by. The controller never touches records. Start with
`decide`, a pure function from a snapshot of the channel to one atomic set of writes and a sentence.
`leader` is the process around it: election, reading and writing.
"""
