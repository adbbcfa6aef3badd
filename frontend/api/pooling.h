#pragma once

// The routes of a model that pools, as calls through the stages of Generate: each of a request's
// inputs is a choice, whose only output is its vector or its scores.

#include <memory>

#include "frontend/api/context.h"
#include "frontend/api/generation_call.h"

namespace tandem {

std::unique_ptr<GenerationCall> MakeEmbedding(const ApiContext& context);        // /v1/embeddings
std::unique_ptr<GenerationCall> MakeCohereEmbedding(const ApiContext& context);  // /v2/embed
std::unique_ptr<GenerationCall> MakePooling(const ApiContext& context);          // /pooling
std::unique_ptr<GenerationCall> MakeClassification(const ApiContext& context);   // /classify
// /v1/embeddings, /classify or /pooling, by the model's task.
std::unique_ptr<GenerationCall> MakePoolingByTask(const ApiContext& context);
std::unique_ptr<GenerationCall> MakeScore(const ApiContext& context);   // /score
std::unique_ptr<GenerationCall> MakeRerank(const ApiContext& context);  // /rerank

}  // namespace tandem
