#pragma once

// Which architectures there are: registry.cc has a row for each, with its loader and its rules for
// config.json. Thread: as Model.

#include <memory>
#include <string>
#include <string_view>

#include "common/status.h"
#include "engine_core/models/model.h"
#include "engine_core/weights/model_config.h"

namespace tandem {

// "GemmaForCausalLM, Gemma2ForCausalLM, ..."
std::string KnownArchitectures();

// The config of a model folder, by the rules of its architecture. An unknown architecture is an
// error that lists the known ones.
StatusOr<ModelConfig> ReadModelConfig(const std::string& model_dir,
                                      std::string_view hf_overrides = {});
// The same from text; `generation_config` may be empty.
StatusOr<ModelConfig> ParseModelConfig(std::string_view config, std::string_view generation_config);

// The layer context.only_layer of the config's architecture. REQUIRES: the config has one layer.
StatusOr<std::unique_ptr<Stage>> LoadLayerAlone(const LoadContext& context);

// The embedding, the head or both, whole and without layers, for a rank that has a part of them.
// The context's stage and share are not read.
StatusOr<std::unique_ptr<Model>> LoadTables(const LoadContext& context, bool embedding, bool head);

// Loads a model of the config's architecture in stages, or the one stage of context.stage alone.
// REQUIRES: at most as many stages as layers.
StatusOr<std::unique_ptr<Model>> LoadModel(const LoadContext& context, int num_stages = 1);

}  // namespace tandem
