"""A caller of the channel that is killed."""


class KilledError(BaseException):
    """The worker was killed."""


class MortalChannel:
    """A channel whose user is killed after some writes, or just before the next one."""

    def __init__(self, channel, writes, *, before):
        self.channel, self.left, self.before = channel, writes, before

    def __getattr__(self, name):
        method = getattr(self.channel, name)
        if name not in {"create", "multi", "put", "delete"}:
            return method

        def write(*args, **more):
            self.left -= 1
            if self.left == 0 and self.before:
                raise KilledError
            answer = method(*args, **more)
            if self.left == 0:
                raise KilledError
            return answer

        return write
