// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Headers that are compiled once for each program of the unit tests, because most of a test's
 * compilation is spent in them. A test includes what it uses nevertheless.
 */
#include "../catch.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>
