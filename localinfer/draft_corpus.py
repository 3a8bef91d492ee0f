"""Sixty fixed conversations on which drafting is measured: ten of each of six kinds.

The first three kinds are work on a text that is in the conversation already, as a person does it over several turns: a
file is printed again with an edit, a sentence is quoted from a passage, records are put into another form. The last two
hardly copy anything. All texts were written for this purpose.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from localinfer.engine.params import ChatMessage


@dataclass(frozen=True)
class DraftPrompt:
    kind: str
    messages: tuple[ChatMessage, ...]  # user and assistant in turn; the last one is the user's

    @property
    def text(self) -> str:
        """For a model without a chat template."""
        return "\n\n".join(m.content for m in self.messages)


COPY_HEAVY = ("code edit", "quote and answer", "JSON reformatting")
KINDS = (*COPY_HEAVY, "list continuation", "creative writing", "multilingual chat")

# A file as it was last printed, and two edits that are asked for.
_CODE = (
    (
        "def read_config(path):\n    config = {}\n    with open(path) as f:\n        for line in f:\n"
        "            if not line.strip():\n                continue\n            key, value = line.split('=')\n"
        "            config[key.strip()] = value.strip()\n    return config\n\n\n"
        "def write_config(path, config):\n    with open(path, 'w') as f:\n        for key, value in config.items():\n"
        "            f.write(key + '=' + value + '\\n')\n",
        "Rename the variable config to settings.", "Write the keys in sorted order.",
    ),
    (
        "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n"
        "        self.items.append(item)\n\n    def pop(self):\n        return self.items.pop()\n\n"
        "    def peek(self):\n        return self.items[-1]\n\n    def is_empty(self):\n"
        "        return len(self.items) == 0\n\n    def size(self):\n        return len(self.items)\n",
        "Add a method clear that removes all items.", "Rename the class to Pile.",
    ),
    (
        "function total(prices) {\n  let sum = 0;\n  for (let i = 0; i < prices.length; i++) {\n"
        "    sum = sum + prices[i];\n  }\n  return sum;\n}\n\nfunction average(prices) {\n"
        "  if (prices.length === 0) {\n    return 0;\n  }\n  return total(prices) / prices.length;\n}\n\n"
        "function report(prices) {\n  console.log('total', total(prices));\n"
        "  console.log('average', average(prices));\n}\n",
        "Add a function count.", "Use const in place of let where that is possible.",
    ),
    (
        "CREATE TABLE customers (\n  id INTEGER PRIMARY KEY,\n  name TEXT NOT NULL,\n  town TEXT,\n  joined DATE\n);\n"
        "\nCREATE TABLE orders (\n  id INTEGER PRIMARY KEY,\n  customer_id INTEGER REFERENCES customers(id),\n"
        "  total REAL NOT NULL,\n  placed DATE\n);\n\nSELECT customers.name, orders.total\nFROM orders\n"
        "JOIN customers ON customers.id = orders.customer_id\nWHERE orders.total > 100\nORDER BY orders.total DESC;\n",
        "Add a column email to customers.", "Show orders above 250 only.",
    ),
    (
        "def greet(names):\n    count = 0\n    for name in names:\n        print('Hello, ' + name)\n"
        "        count = count + 1\n        if count > 10:\n            print('That is enough.')\n            break\n"
        "    return count\n\n\ndef farewell(names):\n    for name in names:\n        print('Goodbye, ' + name)\n\n\n"
        "names = ['Ada', 'Bruno', 'Chen']\nprint(greet(names))\nfarewell(names)\n",
        "Greet at most five names.", "Add Dina to the names.",
    ),
)  # fmt: skip
# A passage; a question about each of three of its sentences, with the sentence that answers it.
_PASSAGES = (
    (
        "The lighthouse on Grey Point was built in 1862 by two brothers from the village. Its lamp burned whale oil"
        " until 1891, when it was changed to paraffin. The last keeper, Anna Holt, left the tower in 1974, after "
        "the light had been made to run by itself. Since then a small museum on the ground floor shows her log "
        "books and her radio.",
        ("Who built the lighthouse?", 0), ("What did the lamp burn?", 1), ("What is in the museum?", 3),
    ),
    (
        "Red clover is sown in early spring at about twelve kilograms per hectare. It flowers from June to "
        "September, and bumblebees visit it more than honeybees do, because their tongues are longer. Fields are "
        "cut twice before the third year, when the clover is ploughed in. Wheat that follows clover needs a third "
        "less nitrogen.",
        ("When is clover sown?", 0), ("Which insects visit it most?", 1), ("What does wheat need after clover?", 3),
    ),
    (
        "The ferry leaves Norham at 7:15, 9:40 and 13:05 on weekdays, and at 10:00 on Sundays. The crossing takes "
        "fifty minutes. Bicycles travel free of charge, dogs pay half fare, and cars must be booked one day before "
        "departure. In strong wind the captain may wait in the harbour of Lund until the sea is calm.",
        ("When does the ferry leave?", 0), ("What do dogs pay?", 2), ("What happens in strong wind?", 3),
    ),
    (
        "In the first test the new valve held a pressure of nine bar for six hours without loss. In the second test"
        " it was cooled to minus twenty degrees, and lost one tenth of a bar each hour. The engineers blamed the "
        "rubber seal. A seal of silicone was fitted in May, and the third test ran for ten days without any loss of"
        " pressure.",
        ("What happened in the first test?", 0), ("What was lost in the cold?", 1), ("What was fitted in May?", 3),
    ),
    (
        "Marta keeps the accounts, Olaf drives the van, and Yusuf looks after the two greenhouses. On Fridays all "
        "three load the van with tomatoes, beans and flowers, and Olaf takes them to the market in Eastbury before "
        "six in the morning. What is not sold by noon goes to the kitchen of the school. In winter the market is "
        "held in the old mill.",
        ("Who drives the van?", 0), ("What is taken to the market?", 1), ("Where is the market held in winter?", 3),
    ),
)  # fmt: skip
_NAMES = ("Ada", "Bruno", "Chen", "Dina", "Emil", "Farah", "Goran", "Hana", "Ivan", "Jun")
_TOWNS = ("Lisbon", "Oslo", "Quito", "Nairobi", "Osaka", "Perth", "Tunis", "Riga", "Lima", "Cork")
_LISTS = (
    "Monday: soup. Tuesday: rice. Wednesday: soup. Thursday: rice. Friday:",
    "1. The sun is a star. 2. The moon is a moon. 3. The earth is a planet. 4. Mars is a",
    "red apple, red cherry, red tomato, yellow banana, yellow lemon, yellow",
    "1 x 7 = 7, 2 x 7 = 14, 3 x 7 = 21, 4 x 7 = 28, 5 x 7 =",
    "January has 31 days. February has 28 days. March has 31 days. April has",
    "A is for ant. B is for bear. C is for cat. D is for dog. E is for",
    "Chapter 1: The Door. Chapter 2: The Stairs. Chapter 3: The Room. Chapter 4:",
    "Paris is in France. Rome is in Italy. Madrid is in Spain. Berlin is in",
    "- [x] buy milk\n- [x] buy bread\n- [ ] buy eggs\n- [ ] buy",
    "one sheep, two sheep, three sheep, four sheep, five sheep, six",
)
_CREATIVE = (
    "Write a short story about a clock that runs backwards.",
    "Describe the smell of a library after rain.",
    "Write a poem about a bridge that nobody crosses.",
    "Invent a festival for a village on the moon, and tell how it began.",
    "What would a river say to the sea?",
    "Write a letter from a lighthouse to a ship.",
    "Tell a joke about a robot that is learning to cook.",
    "Describe a color that does not exist.",
    "Write the first page of a novel that starts with a missing key.",
    "Imagine a conversation between a tree and the wind.",
)
_MULTILINGUAL = (
    "Wie heißt die Hauptstadt von Österreich, und wofür ist sie bekannt?",
    "¿Cuáles son los meses del año en español?",
    "Comment prépare-t-on une omelette ? Donne les étapes.",
    "Qual è la differenza tra un fiume e un lago?",
    "Quais são os planetas do sistema solar?",
    "Translate into French, German and Spanish: Good morning, how are you?",
    "Jakie są kolory tęczy?",
    "日本の首都はどこですか。",
    "Столица какой страны Париж?",
    "Hur många dagar har ett år, och varför?",
)


def corpus() -> list[DraftPrompt]:
    conversations = {
        "code edit": [_code_edit(code, edit) for code, *edits in _CODE for edit in edits],
        "quote and answer": [_quote(passage, pairs) for passage, *asked in _PASSAGES for pairs in (asked, asked[::-1])],
        "JSON reformatting": [_reformat(i) for i in range(10)],
        "list continuation": [[f"Continue this list, in the same form:\n{text}"] for text in _LISTS],
        "creative writing": [[text] for text in _CREATIVE],
        "multilingual chat": [[text] for text in _MULTILINGUAL],
    }
    return [DraftPrompt(kind, _turns(texts)) for kind in KINDS for texts in conversations[kind]]


def _turns(texts: Sequence[str]) -> tuple[ChatMessage, ...]:
    return tuple(ChatMessage("assistant" if i % 2 else "user", text) for i, text in enumerate(texts))


def _code_edit(code: str, edit: str) -> list[str]:
    block = f"```\n{code}```"
    return [f"This is my file. Print it.\n{block}", block, f"{edit} Print the whole file again."]


def _quote(passage: str, asked: Sequence[tuple[str, int]]) -> list[str]:
    """Two questions answered with a quotation of two sentences, then a third one."""
    sentences = passage.rstrip(".").split(". ")
    answers = [f'The text says: "{". ".join(sentences[min(i, 2) : min(i, 2) + 2])}."' for _, i in asked]
    (first, _), (second, _), (third, _) = asked
    task = f"{passage}\n\nAnswer each question with a quotation from the text. {first}"
    return [task, answers[0], second, answers[1], third]


def _reformat(i: int) -> list[str]:
    """One list of records put on lines of their own, with a further key, then another list."""
    groups = [_people(i, 2), _people(i + 5, 4)]
    answer = "\n".join(json.dumps({**p, "active": True}) for p in groups[0])
    task = 'Print each record on a line of its own and add "active": true.'
    return [f"{task}\n{json.dumps(groups[0])}", answer, f"{task}\n{json.dumps(groups[1])}"]


def _people(i: int, n: int) -> list[dict[str, object]]:
    return [
        {"name": _NAMES[(i + k) % 10], "town": _TOWNS[(i * 3 + k) % 10], "age": 20 + (i * 7 + k * 11) % 50}
        for k in range(n)
    ]
