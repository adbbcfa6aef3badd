#pragma once

// Parts of MakeSetup: features that other flags or the model exclude, and kinds of models that
// exclude features. Each takes what the parts before it have set up, in the order of MakeSetup.
// Thread: main. Failure: INVALID_ARGUMENT that names the flag which is not built for another.

#include "common/status.h"
#include "engine_core/config.h"

namespace tandem {

// Needs the device.
Status SetDrafts(const EngineConfig& config, EngineSetup* setup);
Status SetAdapters(const EngineConfig& config, EngineSetup* setup);
// Needs the device and pooling. What a model's tower is not built for takes texts alone.
Status SetImages(const EngineConfig& config, const ModelConfig& model, EngineSetup* setup);
// Need the drafts too.
Status CheckRecurrent(const ModelConfig& model, const EngineSetup& setup);
Status CheckKvFormat(const EngineConfig& config, const ModelConfig& model,
                     const EngineSetup& setup);
Status CheckKeyIndex(const EngineConfig& config, const ModelConfig& model,
                     const EngineSetup& setup);
Status CheckUneven(const EngineConfig& config, const ModelConfig& model, const EngineSetup& setup);
Status CheckSleepMode(const EngineConfig& config, const EngineSetup& setup);
Status SetRanks(const EngineConfig& config, const ModelConfig& model, EngineSetup* setup);
// Needs all of them, and prefix caching.
Status SetKvTransfer(const EngineConfig& config, const ModelConfig& model, EngineSetup* setup);
// Needs the connector too.
void SetLayerGroups(const EngineConfig& config, const ModelConfig& model, EngineSetup* setup);

}  // namespace tandem
