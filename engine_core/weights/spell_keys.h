#pragma once

// Keys of config.json that need more than a new name, put into the spelling of the others
// (ConfigRules::spell): layers that a pattern or a period chooses become layer_types or
// mlp_only_layers. Pure. Failure: the Status names the key.

#include <nlohmann/json_fwd.hpp>

#include "common/status.h"

namespace tandem {

Status SpellKimi(nlohmann::json* keys);
Status SpellLfm2(nlohmann::json* keys);
Status SpellLfm2Moe(nlohmann::json* keys);
Status SpellHunyuanMoe(nlohmann::json* keys);
Status SpellGemma4(nlohmann::json* keys);
Status SpellGraniteMoe(nlohmann::json* keys);
Status SpellGraniteHybrid(nlohmann::json* keys);
Status SpellNemotronH(nlohmann::json* keys);
Status SpellFalconH1(nlohmann::json* keys);
Status SpellJamba(nlohmann::json* keys);

}  // namespace tandem
