#!/usr/bin/env bash
# The caller as a batch job of its own, where login nodes end what runs for long:
#
#   sbatch deploy/hpc/caller.sh slurm /scratch/digits
#   qsub -- deploy/hpc/caller.sh pbs /scratch/digits
#
# It needs one core; its time is that of the whole job. Should it not suffice, submit it again: the
# job goes on where it was.
#SBATCH --job-name=scoring
#SBATCH --cpus-per-task=1
#SBATCH --mem=2G
#SBATCH --time=24:00:00
#PBS -N scoring
#PBS -l select=1:ncpus=1:mem=2GB
#PBS -l walltime=24:00:00
set -euo pipefail
# Batch systems run a copy of this file: the folder that it was submitted from is known.
cd "${SLURM_SUBMIT_DIR:-${PBS_O_WORKDIR:-.}}"
exec python deploy/hpc/score.py "$@"
