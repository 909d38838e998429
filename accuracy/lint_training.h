// Short trainings that the linter observes.
#pragma once

#include <cstdint>
#include <vector>

#include "accuracy/lint_mistakes.h"
#include "accuracy/lint_observation.h"
#include "accuracy/namespaces.h"
#include "models/trial.h"

namespace halfmark::accuracy {

// Trains a subject with labels by this procedure, and in each step an fp64 twin from the same parameters on the same data. The
// training has an evaluation after its second step and, where running statistics and a dynamic scaler meet, an infinite
// number in the input of its fourth. It ends early when a number of a forward pass or a parameter is not finite.
Observation observe_training(const TrialSpec& spec, const Procedure& procedure, int64_t steps);

// Share of the gradients, as they are stored, that are not finite.
double nonfinite_gradients_of(Trial& trial);

// What any training says about its loss scale: `steps` with the scale, whether each was skipped, and nonfinite_gradients.
Observation observe_scaling(Trial& trial, std::vector<StepFacts> steps);

}  // namespace halfmark::accuracy
