# Finds LibTorch 2.15 and defines LibTorch::LibTorch. Needs no CUDA toolkit.
#
# Takes the target LibTorch::LibTorch or torch (of find_package(Torch)) that the project already has; else looks in
# LIBTORCH_ROOT (variable or environment), CMAKE_PREFIX_PATH (the same), the folder that scripts/setup fills
# (REPRISE_DEPS_DIR), and last in the torch package of python3.
# Another release is refused: src/autograd uses internals that change between releases.
set(LibTorch_REQUIRED_VERSION 2.15)
unset(LibTorch_FOUND)
unset(LibTorch_VERSION)
unset(_reason)

# Sets LibTorch_VERSION from the headers in one of the folders, and _reason when it is the wrong one.
macro(_libtorch_check_version)
  find_file(_version_header torch/headeronly/version.h PATHS ${ARGN} NO_DEFAULT_PATH NO_CACHE)
  if(_version_header)
    foreach(part MAJOR MINOR PATCH)
      file(STRINGS "${_version_header}" _line REGEX "^#define TORCH_VERSION_${part} ")
      string(REGEX REPLACE "[^0-9]" "" _${part} "${_line}")
    endforeach()
    set(LibTorch_VERSION "${_MAJOR}.${_MINOR}.${_PATCH}")
    if(NOT "${_MAJOR}.${_MINOR}" STREQUAL LibTorch_REQUIRED_VERSION)
      set(_reason "Reprise needs LibTorch ${LibTorch_REQUIRED_VERSION}, found ${LibTorch_VERSION} in ${ARGN}.
It uses LibTorch's internals (saved-tensor hooks, engine), which change between releases.
Point LIBTORCH_ROOT at LibTorch ${LibTorch_REQUIRED_VERSION}, or run scripts/setup and leave it unset.")
    endif()
  else()
    # Releases before 2.9 have no such header.
    set(_reason "Reprise needs LibTorch ${LibTorch_REQUIRED_VERSION}, found another release in ${ARGN}.")
  endif()
  unset(_version_header)
endmacro()

include(FindPackageHandleStandardArgs)

foreach(_target LibTorch::LibTorch torch)
  if(TARGET ${_target} AND NOT LibTorch_FOUND AND NOT _reason)
    get_target_property(_include_dirs ${_target} INTERFACE_INCLUDE_DIRECTORIES)
    _libtorch_check_version(${_include_dirs} ${TORCH_INCLUDE_DIRS})
    if(NOT _reason)
      set(LibTorch_FOUND TRUE)
      if(NOT TARGET LibTorch::LibTorch)
        add_library(LibTorch::LibTorch INTERFACE IMPORTED)
        target_link_libraries(LibTorch::LibTorch INTERFACE ${_target})
      endif()
    endif()
  endif()
endforeach()
if(LibTorch_FOUND)
  return()
endif()

if(NOT _reason)
  if(LIBTORCH_ROOT)
    set(_roots "${LIBTORCH_ROOT}")
  elseif(DEFINED ENV{LIBTORCH_ROOT})
    set(_roots "$ENV{LIBTORCH_ROOT}")
  else()
    string(REPLACE ":" ";" _roots "$ENV{CMAKE_PREFIX_PATH}")
    set(_prefixes ${CMAKE_PREFIX_PATH} ${_roots})
    unset(_roots)
    foreach(_prefix IN LISTS _prefixes)
      # The last is what torch.utils.cmake_prefix_path of a Python installation needs.
      list(APPEND _roots "${_prefix}" "${_prefix}/torch" "${_prefix}/../..")
    endforeach()
    list(APPEND _roots "${REPRISE_DEPS_DIR}/torch")
    execute_process(
      COMMAND python3 -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
      OUTPUT_VARIABLE _python_torch OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    list(APPEND _roots ${_python_torch})
  endif()

  # Nothing is cached: another LIBTORCH_ROOT takes effect at the next configuration.
  find_path(LibTorch_INCLUDE_DIR torch/csrc/autograd/custom_function.h
    PATHS ${_roots} PATH_SUFFIXES include NO_DEFAULT_PATH NO_CACHE)
  if(LibTorch_INCLUDE_DIR)
    string(REGEX REPLACE "/$" "" LibTorch_INCLUDE_DIR "${LibTorch_INCLUDE_DIR}")
    _libtorch_check_version("${LibTorch_INCLUDE_DIR}")
    get_filename_component(LibTorch_ROOT_DIR "${LibTorch_INCLUDE_DIR}" DIRECTORY)
    foreach(lib torch_cpu c10 torch_cuda c10_cuda)
      find_library(LibTorch_${lib}_LIBRARY ${lib} PATHS "${LibTorch_ROOT_DIR}/lib" NO_DEFAULT_PATH NO_CACHE)
    endforeach()
  else()
    set(_reason "Run scripts/setup, or set LIBTORCH_ROOT to an unpacked LibTorch ${LibTorch_REQUIRED_VERSION}.
Searched: ${_roots}")
  endif()
endif()

if(_reason)
  set(LibTorch_INCLUDE_DIR LibTorch_INCLUDE_DIR-NOTFOUND)
endif()
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_INCLUDE_DIR LibTorch_torch_cpu_LIBRARY LibTorch_c10_LIBRARY
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "${_reason}")

if(LibTorch_FOUND)
  add_library(LibTorch::LibTorch INTERFACE IMPORTED)
  target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE
    "${LibTorch_INCLUDE_DIR}" "${LibTorch_INCLUDE_DIR}/torch/csrc/api/include")
  target_compile_features(LibTorch::LibTorch INTERFACE cxx_std_20)
  # The wheel's libraries refer to CUDA libraries that a CPU-only machine does not have.
  target_link_options(LibTorch::LibTorch INTERFACE LINKER:--allow-shlib-undefined)
  target_link_libraries(LibTorch::LibTorch INTERFACE
    "${LibTorch_torch_cpu_LIBRARY}" "${LibTorch_c10_LIBRARY}")
  if(LibTorch_torch_cuda_LIBRARY AND LibTorch_c10_cuda_LIBRARY)
    # Nothing refers to these by name; they register the CUDA kernels when loaded.
    target_link_libraries(LibTorch::LibTorch INTERFACE
      -Wl,--push-state,--no-as-needed "${LibTorch_torch_cuda_LIBRARY}" "${LibTorch_c10_cuda_LIBRARY}" -Wl,--pop-state)
  endif()
endif()
