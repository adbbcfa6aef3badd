#pragma once

// The loaders of all architectures, one line each; registry.cc names them in its table.

#include "engine_core/models/model.h"

namespace tandem {

StatusOr<std::unique_ptr<Model>> LoadGpt2(const LoadContext& context);
StatusOr<std::unique_ptr<Model>> LoadLlama(const LoadContext& context);
StatusOr<std::unique_ptr<Model>> LoadGemma(const LoadContext& context);
StatusOr<std::unique_ptr<Model>> LoadGemma2(const LoadContext& context);
StatusOr<std::unique_ptr<Model>> LoadGemma3(const LoadContext& context);
StatusOr<std::unique_ptr<Model>> LoadMixtral(const LoadContext& context);
StatusOr<std::unique_ptr<Model>> LoadOlmo2(const LoadContext& context);
StatusOr<std::unique_ptr<Model>> LoadPhi3(const LoadContext& context);
StatusOr<std::unique_ptr<Model>> LoadQwen2(const LoadContext& context);
StatusOr<std::unique_ptr<Model>> LoadQwen3(const LoadContext& context);
StatusOr<std::unique_ptr<Model>> LoadQwen3Moe(const LoadContext& context);

}  // namespace tandem
