"""One small file a family: what its metadata means. ARCHITECTURES maps GGUF's general.architecture to it.

To add one: a subclass of Architecture (families/llama.py shows the plain case), its name in ARCHITECTURES, and golden
logits in the tests. What the decoder does follows from the config and from which tensors the file holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from localinfer.errors import UnsupportedModel
from localinfer.models.families.base import Architecture
from localinfer.models.families.deepseek import DeepSeek, DeepSeek2, Dots1
from localinfer.models.families.gemma import Gemma, Gemma2, Gemma3
from localinfer.models.families.glm import GLM4, GLM4MoE
from localinfer.models.families.gpt import GPT2, Falcon, GPTNeoX, Nemotron, StableLM, StarCoder2
from localinfer.models.families.gptoss import GptOss
from localinfer.models.families.llama import (
    Arcee,
    Baichuan,
    Cohere,
    Cohere2,
    Exaone4,
    Granite,
    HunYuan,
    Llama,
    Llama4,
    MiniCPM,
    Olmo2,
    OlmoE,
    SeedOSS,
    SmolLM3,
)
from localinfer.models.families.phi import Phi2, Phi3
from localinfer.models.families.qwen import Qwen, Qwen2MoE
from localinfer.models.families.recurrent import (
    LFM2,
    FalconH1,
    GraniteHybrid,
    Mamba,
    Mamba2,
    NemotronH,
    Qwen3Next,
    Qwen35,
)

if TYPE_CHECKING:
    from localinfer.formats.gguf import GGUFFile

ARCHITECTURES: dict[str, Architecture] = {
    "arcee": Arcee(),
    "baichuan": Baichuan(),
    "chatglm": GLM4(),
    "cohere2": Cohere2(),
    "command-r": Cohere(),
    "deepseek": DeepSeek(),
    "deepseek2": DeepSeek2(),
    "dots1": Dots1(),
    "ernie4_5": Llama(),
    "ernie4_5-moe": Llama(),
    "exaone": Architecture(),
    "exaone4": Exaone4(),
    "falcon": Falcon(),
    "falcon-h1": FalconH1(),
    "gemma": Gemma(),
    "gemma2": Gemma2(),
    "gemma3": Gemma3(),
    "glm4": GLM4(),
    "glm4moe": GLM4MoE(),
    "gpt-oss": GptOss(),
    "gpt2": GPT2(),
    "gptneox": GPTNeoX(),
    "granite": Granite(),
    "granitehybrid": GraniteHybrid(),
    "granitemoe": Granite(),
    "hunyuan-dense": HunYuan(),
    "hunyuan-moe": HunYuan(),
    "internlm2": Llama(),
    "lfm2": LFM2(),
    "lfm2moe": LFM2(),
    "llama": Llama(),
    "llama4": Llama4(),
    "mamba": Mamba(),
    "mamba2": Mamba2(),
    "minicpm": MiniCPM(),
    "minimax-m2": Architecture(),
    "nemotron": Nemotron(),
    "nemotron_h": NemotronH(),
    "nemotron_h_moe": NemotronH(),
    "olmo2": Olmo2(),
    "olmoe": OlmoE(),
    "phi2": Phi2(),
    "phi3": Phi3(),
    "qwen2": Qwen(),
    "qwen2moe": Qwen2MoE(),
    "qwen2vl": Qwen(),
    "qwen35": Qwen35(),
    "qwen35moe": Qwen35(),
    "qwen3": Qwen(),
    "qwen3moe": Qwen(),
    "qwen3next": Qwen3Next(),
    "qwen3vl": Qwen(),
    "qwen3vlmoe": Qwen(),
    "seed_oss": SeedOSS(),
    "smollm3": SmolLM3(),
    "stablelm": StableLM(),
    "starcoder2": StarCoder2(),
    "xverse": Llama(),
}


def architecture(f: GGUFFile) -> Architecture:
    """The family of a file. UnsupportedModel names an architecture that is not here."""
    name = f.metadata.get_str("general.architecture")
    if name not in ARCHITECTURES:
        raise UnsupportedModel(
            f"{f.path}: architecture {name!r} is not supported (known: {', '.join(sorted(ARCHITECTURES))})",
            "its size can still be checked with `localinfer fit`",
        )
    return ARCHITECTURES[name]
