"""What a person sees.

Textual draws a change with the next tick of its clock, and skips a tick after a frame that took longer than one: at its
usual 60 ticks a second a key that is typed while an answer streams may wait 33 ms for nothing. It reads the rate when
it is imported, which happens after this; without changes nothing is drawn, whatever the rate.
"""

import os

os.environ.setdefault("TEXTUAL_FPS", "240")
