"""Sixty fixed prompts on which drafting is measured: ten of each of six kinds.

The first three kinds copy much of their prompt, the last two hardly any. All texts were written for this purpose.
"""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class DraftPrompt:
    kind: str
    text: str


COPY_HEAVY = ("code edit", "quote and answer", "JSON reformatting")
KINDS = (*COPY_HEAVY, "list continuation", "creative writing", "multilingual chat")

_CODE = (
    "def read_config(path):\n    with open(path) as f:\n        lines = f.readlines()\n    config = {}\n"
    '    for line in lines:\n        key, value = line.split("=")\n        config[key.strip()] = value.strip()\n'
    "    return config\n",
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n"
    "        self.items.append(item)\n\n    def pop(self):\n        return self.items.pop()\n\n"
    "    def is_empty(self):\n        return len(self.items) == 0\n",
    "function total(prices) {\n  let sum = 0;\n  for (let i = 0; i < prices.length; i++) {\n"
    "    sum = sum + prices[i];\n  }\n  return sum;\n}\n\nfunction average(prices) {\n"
    "  return total(prices) / prices.length;\n}\n",
    "SELECT orders.id, customers.name, orders.total\nFROM orders\nJOIN customers ON customers.id = orders.customer_id\n"
    "WHERE orders.total > 100\nORDER BY orders.total DESC;\n",
    "for name in names:\n    print('Hello, ' + name)\n    count = count + 1\n    if count > 10:\n"
    "        print('That is enough.')\n        break\nprint('Greeted ' + str(count) + ' people')\n",
)
_CODE_EDITS = (
    "Write this code again with a comment above every statement:",
    "Repeat this code exactly, but give every name the prefix my_:",
)
_PASSAGES = (
    "The lighthouse on Grey Point was built in 1862 by two brothers from the village. Its lamp burned whale oil until "
    "1891, when it was changed to paraffin. The last keeper, Anna Holt, left the tower in 1974, after the light had "
    "been made to run by itself.",
    "Red clover is sown in early spring at about twelve kilograms per hectare. It flowers from June to September, and "
    "bumblebees visit it more than honeybees do, because their tongues are longer. Fields are cut twice before the "
    "third year, when the clover is ploughed in.",
    "The ferry leaves Norham at 7:15, 9:40 and 13:05 on weekdays, and at 10:00 on Sundays. The crossing takes fifty "
    "minutes. Bicycles travel free of charge, dogs pay half fare, and cars must be booked one day before departure.",
    "In the first test the new valve held a pressure of nine bar for six hours without loss. In the second test it was "
    "cooled to minus twenty degrees, and lost one tenth of a bar each hour. The engineers blamed the rubber seal.",
    "Marta keeps the accounts, Olaf drives the van, and Yusuf looks after the two greenhouses. On Fridays all three "
    "load the van with tomatoes, beans and flowers, and Olaf takes them to the market in Eastbury before six in the "
    "morning.",
)
_QUESTIONS = (
    "Repeat the passage word for word, then say in one sentence what it is about.",
    "Quote each sentence of the passage, and after each quote write one short comment.",
)
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
    texts = {
        "code edit": [f"{edit}\n\n{code}" for code in _CODE for edit in _CODE_EDITS],
        "quote and answer": [f"{passage}\n\n{question}" for passage in _PASSAGES for question in _QUESTIONS],
        "JSON reformatting": [_json_prompt(i) for i in range(10)],
        "list continuation": [f"Continue this list, in the same form:\n{text}" for text in _LISTS],
        "creative writing": list(_CREATIVE),
        "multilingual chat": list(_MULTILINGUAL),
    }
    return [DraftPrompt(kind, text) for kind in KINDS for text in texts[kind]]


def _json_prompt(i: int) -> str:
    people = [
        {"name": _NAMES[(i + k) % 10], "town": _TOWNS[(i * 3 + k) % 10], "age": 20 + (i * 7 + k * 11) % 50}
        for k in range(3)
    ]
    how = "with one key on each line" if i % 2 else "with the keys in alphabetical order"
    return f"Print this JSON again, {how}:\n{json.dumps(people)}"
